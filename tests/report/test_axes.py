"""Ticks of linear and logarithmic axes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc.report.chart import linear_ticks, log_ticks, token_ticks, widen


def test_the_training_length_is_always_a_tick() -> None:
    assert token_ticks(60, 1100, 64) == [64, 128, 256, 512, 1024]
    assert token_ticks(0.9, 17000, 512) == [2, 8, 32, 128, 512, 2048, 8192]
    assert 512 in token_ticks(500, 16000, 512)


@given(st.floats(1.5, 1e6), st.floats(4, 1e5) | st.floats(1e5, 1e60))
def test_a_log_axis_has_two_to_fifteen_ticks_within_its_range(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 15
    assert all(low <= tick <= low * ratio for tick in ticks)


@given(st.floats(1.5, 1e6), st.floats(1.05, 3))
def test_a_narrow_log_axis_has_at_least_three_ticks(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 3 <= len(ticks) <= 15
    assert all(low <= tick <= low * ratio for tick in ticks)


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4))
def test_a_linear_axis_has_evenly_spaced_ticks(low: float, width: float) -> None:
    ticks = linear_ticks(low, low + width)
    assert 3 <= len(ticks) <= 15
    assert all(low - 1e-6 * width <= tick <= low + width * (1 + 1e-6) for tick in ticks)
    steps = {round((b - a) / width, 6) for a, b in pairwise(ticks)}
    assert len(steps) == 1


def test_ticks_are_round_numbers() -> None:
    assert linear_ticks(1.02, 1.5) == [1.1, 1.2, 1.3, 1.4, 1.5]
    assert log_ticks(0.9, 25) == [1, 2, 5, 10, 20]
    assert log_ticks(0.1, 0.95) == [0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8]


@pytest.mark.parametrize("value", [1e-9, 1.0, 1e99, 1e300])
@pytest.mark.parametrize("log", [False, True])
def test_a_single_value_of_any_size_has_an_axis_with_ticks(value: float, log: bool) -> None:
    low, high = widen(value, value, log=log)
    assert low < value < high
    assert (log_ticks if log else linear_ticks)(low, high)


def test_the_largest_numbers_do_not_overflow() -> None:
    assert widen(1.0, 1e308, log=True)[1] <= 1e308
