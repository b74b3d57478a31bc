"""Claims of Su (2021) about frequencies, and the integrals compared with scipy functions."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import fresnel, sici

from posenc.inspect.encoding.frequency_figures import (
    SPECTRA,
    exponential_integral,
    mean_complex_exponential,
    power_integral,
)

DISTANCES = np.array([0.5, 1, 5, 19, 21, 100, 1_000, 10_000])
WITHIN_512 = np.arange(1.0, 513)
INTEGRALS = {spectrum.name: spectrum.integral for spectrum in SPECTRA}
POWERS, EXPONENTIALS = ("t", "t^2", "t^3"), ("10000^-t", "1000^-t")


def real(name: str, *distances: float) -> np.ndarray:
    return INTEGRALS[name](np.array(distances)).real


@pytest.mark.parametrize("base", [1e3, 1e4])
def test_integrals_of_exponential_spectra_are_cosine_integrals(base: float) -> None:
    expected = (sici(DISTANCES)[1] - sici(DISTANCES / base)[1]) / np.log(base)
    assert exponential_integral(DISTANCES, base).real == pytest.approx(expected, abs=1e-12)


def test_integrals_of_power_spectra_are_sine_over_m_and_fresnel_integrals() -> None:
    assert power_integral(DISTANCES, 1.0).real == pytest.approx(
        np.sin(DISTANCES) / DISTANCES, abs=1e-12
    )
    ends = np.sqrt(2 * DISTANCES / np.pi)
    assert power_integral(DISTANCES, 2.0).real == pytest.approx(fresnel(ends)[1] / ends, abs=1e-12)
    numeric, _ = quad(lambda t: np.cos(50 * t**3), 0, 1, limit=200)
    assert power_integral(np.array([50.0]), 3.0).real == pytest.approx([numeric], abs=1e-9)


def test_only_linear_frequencies_cross_zero_within_512_tokens() -> None:
    crossing = {name for name in INTEGRALS if real(name, *WITHIN_512).min() < 0}
    assert crossing == {"t"}


def test_power_spectra_decay_faster_at_short_range_and_exponential_spectra_at_long_range() -> None:
    short = {name: float(np.diff(real(name, 0.001, 4))[0]) for name in INTEGRALS}
    long = {name: float(np.diff(real(name, 128, 512))[0]) for name in INTEGRALS}
    assert max(short[name] for name in POWERS) < min(short[name] for name in EXPONENTIALS)
    assert max(long[name] for name in EXPONENTIALS) < min(long[name] for name in POWERS)


@pytest.mark.parametrize(("name", "base"), [("10000^-t", 1e4), ("1000^-t", 1e3)])
def test_exponential_spectra_cross_zero_at_0_617_times_their_base(name: str, base: float) -> None:
    assert real(name, 0.61 * base)[0] > 0 > real(name, 0.62 * base)[0]


def test_the_mean_over_frequencies_tends_to_the_integral() -> None:
    distances = np.array([1.0, 8, 30])
    for spectrum in SPECTRA:
        means = mean_complex_exponential(spectrum.frequencies(20_000), distances)
        assert means == pytest.approx(spectrum.integral(distances), abs=2e-3)
