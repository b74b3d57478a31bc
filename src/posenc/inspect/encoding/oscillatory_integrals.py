"""Inner products of sinusoidal embeddings by distance, as sums and as oscillatory integrals.

For frequencies f_0 .. f_{n-1}, the mean of cos(m f_i) is <p_a, p_b> / n at distance m = |a - b| (Su
2021, kexue.fm/archives/8231). With f_i = theta(i / n), as n grows, it tends to the real part of the
integral of exp(i m theta(t)) over t from 0 to 1. The modulus of the integral is an upper bound over
all relative phases of query and key.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import exp1, gamma

Array = np.ndarray
NUM_QUADRATURE_NODES = 80
NEAR_DISTANCE = 20.0  # tokens; below this distance, Gauss-Legendre quadrature is accurate


@dataclass(frozen=True)
class ContinuousSpectrum:
    """Frequencies theta(t) for t from 0 to 1: base^-t or t^exponent."""

    name: str
    base: float | None = None
    exponent: float = 1.0

    def frequencies(self, count: int) -> Array:
        """Return `count` values theta(i / count), with i from 0 (exponentials) or 1 (powers)."""
        steps = np.arange(count) / count
        if self.base is not None:
            return self.base**-steps
        return (steps + 1 / count) ** self.exponent

    def integral(self, distance: Array) -> Array:
        """Return the complex integral at each positive distance."""
        if self.base is not None:
            return exponential_integral(distance, self.base)
        return power_integral(distance, self.exponent)


SPECTRA = (
    ContinuousSpectrum("10000^-t", base=10_000.0),
    ContinuousSpectrum("1000^-t", base=1_000.0),
    ContinuousSpectrum("t"),
    ContinuousSpectrum("t^2", exponent=2.0),
    ContinuousSpectrum("t^3", exponent=3.0),
)
"""The spectra that Su (2021) compares."""


def mean_complex_exponential(frequencies: Array, distance: Array) -> Array:
    """Return the mean of exp(i m f) over frequencies [n] at distances m [N]: complex [N]."""
    return np.exp(1j * np.multiply.outer(distance, frequencies)).mean(-1)


def exponential_integral(distance: Array, base: float) -> Array:
    """Return the integral of exp(i m base^-t): (E1(-i m / base) - E1(-i m)) / ln base."""
    m = np.asarray(distance, dtype=float)
    return (exp1(-1j * m / base) - exp1(-1j * m)) / np.log(base)


def power_integral(distance: Array, exponent: float) -> Array:
    """Return the integral of exp(i m t^a) = m^(-1/a) / a * integral of exp(iu) u^(1/a - 1).

    u runs from 0 to m. The integral from 0 to infinity is Gamma(1/a) exp(i pi / 2a). The integral
    from m to infinity is evaluated parallel to the imaginary axis, where it does not oscillate and
    Gauss-Laguerre quadrature converges. At small m, Gauss-Legendre quadrature is accurate.
    """
    m, s = np.asarray(distance, dtype=float), 1 / exponent
    node, weight = np.polynomial.legendre.leggauss(NUM_QUADRATURE_NODES)
    t = (node + 1) / 2
    near = np.exp(1j * np.multiply.outer(m, t**exponent)) @ weight / 2
    node, weight = np.polynomial.laguerre.laggauss(NUM_QUADRATURE_NODES)
    tail = 1j * np.exp(1j * m) * ((m[..., None] + 1j * node) ** (s - 1) @ weight)
    far = s * m**-s * (gamma(s) * np.exp(0.5j * np.pi * s) - tail)
    return np.where(m < NEAR_DISTANCE, near, far)
