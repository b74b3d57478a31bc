from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from posenc.config.errors import ConfigError
from posenc.config.grids import sweep_overrides
from posenc.config.overrides import to_override_value

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12)
)


@given(st.one_of(PLAIN, st.lists(PLAIN, max_size=4)))
def test_hydra_reads_a_rendered_value_back(value: Any) -> None:
    override = OverridesParser.create().parse_override(f"key={to_override_value(value, 'key')}")
    assert not override.is_sweep_override()
    read = override.value()
    assert read == value and type(read) is type(value)


def test_what_a_sweep_has_once() -> None:
    once = ["experiment=e", "hydra.launcher.jobs=2", "hydra/launcher=pool", "size=laptop", "name=n"]
    assert sweep_overrides(["seed=1,2", *once, "encoding=rope"]) == once
    with pytest.raises(ConfigError, match="experiment=a,b: cannot be swept"):
        sweep_overrides(["experiment=a,b"])
