"""Article 000's statements on its frequencies, and the integrals against scipy's own functions."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import fresnel, sici

from posenc.inspect.encoding.curves import CHOICES, exponential, mean_wave, powers

DISTANCES = np.array([0.5, 1, 5, 19, 21, 100, 1_000, 10_000])
WITHIN = np.arange(1.0, 513)
INTEGRALS = {choice.name: choice.integral for choice in CHOICES}
POWERS, EXPONENTIALS = ("t", "t^2", "t^3"), ("10000^-t", "1000^-t")


def real(name: str, *distances: float) -> np.ndarray:
    return INTEGRALS[name](np.array(distances)).real


@pytest.mark.parametrize("base", [1e3, 1e4])
def test_exponentials_are_cosine_integrals(base: float) -> None:
    wanted = (sici(DISTANCES)[1] - sici(DISTANCES / base)[1]) / np.log(base)
    assert exponential(DISTANCES, base).real == pytest.approx(wanted, abs=1e-12)


def test_powers_are_sine_over_m_and_fresnel_integrals() -> None:
    assert powers(DISTANCES, 1.0).real == pytest.approx(np.sin(DISTANCES) / DISTANCES, abs=1e-12)
    ends = np.sqrt(2 * DISTANCES / np.pi)
    assert powers(DISTANCES, 2.0).real == pytest.approx(fresnel(ends)[1] / ends, abs=1e-12)
    found, _ = quad(lambda t: np.cos(50 * t**3), 0, 1, limit=200)
    assert powers(np.array([50.0]), 3.0).real == pytest.approx([found], abs=1e-9)


def test_linear_frequencies_alone_cross_zero() -> None:
    crosses = {name for name in INTEGRALS if real(name, *WITHIN).min() < 0}
    assert crosses == {"t"}


def test_powers_fall_faster_at_short_range_and_exponentials_at_long_range() -> None:
    short = {name: float(np.diff(real(name, 0.001, 4))[0]) for name in INTEGRALS}
    long = {name: float(np.diff(real(name, 128, 512))[0]) for name in INTEGRALS}
    assert max(short[name] for name in POWERS) < min(short[name] for name in EXPONENTIALS)
    assert max(long[name] for name in EXPONENTIALS) < min(long[name] for name in POWERS)


@pytest.mark.parametrize(("name", "base"), [("10000^-t", 1e4), ("1000^-t", 1e3)])
def test_exponentials_cross_zero_at_last_near_0_617_of_their_base(name: str, base: float) -> None:
    assert real(name, 0.6 * base)[0] > 0 > real(name, 0.64 * base)[0]


def test_the_sum_tends_to_the_integral_and_the_modulus_is_above_it() -> None:
    at = np.array([1.0, 8, 30])
    for choice in CHOICES:
        waves = mean_wave(choice.frequencies(20_000), at)
        assert waves == pytest.approx(choice.integral(at), abs=2e-3)
        assert np.all(np.abs(waves) >= waves.real)
