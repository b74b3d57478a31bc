"""Building an encoding leaves no traces; one that does not fit into memory is not allocated."""

from functools import wraps
from typing import Any

import pytest
import torch

from compositions import composer
from posenc.config.errors import ConfigError
from posenc.encodings.alibi import Alibi
from posenc.jobs.job_config import compose_job
from posenc.model import build
from posenc.model.build import build_encoding, check_memory


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of main memory that this machine seems to have."""
    monkeypatch.setattr(build, "memory_bytes", lambda: 1_000_000)
    return 1_000_000


@pytest.mark.parametrize(
    "overrides",
    [
        ["encoding=learned", "encoding.max_length=100_000_000_000"],
        ["encoding=cope", "encoding.npos_max=1_000_000_000_000"],
        ["encoding=dape_kerple", "encoding.mlp_width=1_000_000_000"],
    ],
)
def test_an_encoding_larger_than_the_memory_is_rejected_before_it_is_allocated(
    small_job: list[str], overrides: list[str], memory: int
) -> None:
    config = compose_job([*small_job, *overrides], composer())
    with pytest.raises(ConfigError, match="GB of memory; use smaller values"):
        build_encoding(config)


def test_the_tensors_of_an_encoding_are_counted_together(small_job: list[str], memory: int) -> None:
    overrides = ["encoding=path", "encoding.rank=2500"]  # two tensors of 0.64 MB each
    config = compose_job([*small_job, *overrides], composer())
    with pytest.raises(ConfigError, match="GB of memory"):
        build_encoding(config)
    assert build_encoding(compose_job([*small_job, "encoding=path"], composer()))


def test_the_memory_limit_changes_no_parameter(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose_job([*small_job, "encoding=grape_a"], composer())
    limited = build_encoding(config).state_dict()
    monkeypatch.setattr(build, "ALLOCATING_FUNCTIONS", set())
    unlimited = build_encoding(config).state_dict()
    assert limited and all(torch.equal(limited[name], unlimited[name]) for name in limited)


def test_settings_of_torch_that_an_encoding_changes_are_restored(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    initialize = Alibi.__init__

    @wraps(initialize)
    def with_another_dtype(*args: Any, **kwargs: Any) -> None:
        torch.set_default_dtype(torch.float64)
        initialize(*args, **kwargs)

    monkeypatch.setattr(Alibi, "__init__", with_another_dtype)
    build_encoding(compose_job([*small_job, "encoding=alibi"], composer()))
    assert torch.get_default_dtype() == torch.float32


def test_a_model_larger_than_the_memory_is_rejected(memory: int) -> None:
    check_memory(memory // 4)
    with pytest.raises(ConfigError, match="use a smaller model"):
        check_memory(memory // 4 + 1)
