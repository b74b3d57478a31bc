"""Overrides in Hydra's grammar: rendering of values, and keys that apply to a whole sweep."""

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from posenc.config.errors import ConfigError
from posenc.config.grids import sweep_overrides
from posenc.config.overrides import to_override_value
from posenc.config.search_space import split_intervals

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12)
)


@given(st.one_of(SCALARS, st.lists(SCALARS, max_size=4)))
def test_hydra_parses_a_rendered_value_back(value: Any) -> None:
    override = OverridesParser.create().parse_override(f"key={to_override_value(value, 'key')}")
    assert not override.is_sweep_override()
    parsed = override.value()
    assert parsed == value and type(parsed) is type(value)


def test_keys_of_the_whole_sweep_have_one_value() -> None:
    common = [
        "experiment=e",
        "hydra.launcher.jobs=2",
        "hydra/launcher=pool",
        "size=laptop",
        "name=n",
    ]
    assert sweep_overrides(["seed=1,2", *common, "encoding=rope"]) == common
    with pytest.raises(ConfigError, match="experiment=a,b: cannot be swept"):
        sweep_overrides(["experiment=a,b"])


def test_a_key_must_not_have_both_an_interval_and_a_value() -> None:
    words = ["optimizer.learning_rate=interval(1e-3,1e-2)", "++optimizer.learning_rate=5"]
    with pytest.raises(ConfigError, match=r"\+\+optimizer.learning_rate=5: this key"):
        split_intervals(words)
