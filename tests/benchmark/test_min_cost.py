"""A benchmark whose rounds would take too long or need too much memory is not started."""

import pytest

from posenc.benchmark.measurements import min_round_seconds
from posenc.config.errors import ConfigError


def test_the_minimum_time_increases_with_variants_and_decreases_with_threads(variants) -> None:
    one = min_round_seconds(variants("encoding=nope", "train_length=16"), threads=1)
    two = variants("encoding=nope,alibi", "train_length=16")
    assert min_round_seconds(two, threads=1) == pytest.approx(2 * one)
    assert min_round_seconds(two, threads=2) == pytest.approx(one)


@pytest.mark.parametrize(
    ("overrides", "limit"),
    [
        (["train_length=1e6", "batch_tokens=1e8", "kernel=blocks"], "minutes"),
        (["train_length=1e5", "batch_tokens=1e7", "kernel=reference", "passes=[forward]"], "GB"),
    ],
)
def test_a_benchmark_that_is_too_large_is_an_error(variants, overrides, limit) -> None:
    with pytest.raises(ConfigError, match=limit):
        min_round_seconds(variants("encoding=nope", *overrides), threads=64)
