"""Inner products of codes by distance, as sums over frequencies and as oscillatory integrals.

For frequencies f_0 .. f_{n-1} the mean of cos(m f_i) is <p_m', p_n'> / n at distance m = |m' - n'|
(article 000, "Sinusoidal positions, traced to their source", eq. 11). With f_i = theta(i / n) it
tends to Re of the integral of exp(i m theta(t)) over t from 0 to 1; its modulus is the envelope:
no relative phase of query and key can make more of it.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import exp1, gamma

Array = np.ndarray
NODES = 80
NEAR = 20.0


@dataclass(frozen=True)
class Choice:
    """A choice of theta(t), t from 0 to 1, named as in article 000."""

    name: str
    base: float | None = None
    exponent: float = 1.0

    def frequencies(self, count: int) -> Array:
        """theta(i / count), exponentials from i = 0 and powers to i = count, so that none is 0."""
        steps = np.arange(count) / count
        if self.base is not None:
            return self.base**-steps
        return (steps + 1 / count) ** self.exponent

    def integral(self, distance: Array) -> Array:
        """The complex integral at each distance above 0."""
        if self.base is not None:
            return exponential(distance, self.base)
        return powers(distance, self.exponent)


CHOICES = (
    Choice("10000^-t", base=10_000.0),
    Choice("1000^-t", base=1_000.0),
    Choice("t"),
    Choice("t^2", exponent=2.0),
    Choice("t^3", exponent=3.0),
)
"""Article 000's, with two of its powers t^alpha."""


def mean_wave(frequencies: Array, distance: Array) -> Array:
    """The mean of exp(i m f) over frequencies [n] at distances m [N]: complex [N]."""
    return np.exp(1j * np.multiply.outer(distance, frequencies)).mean(-1)


def exponential(distance: Array, base: float) -> Array:
    """The integral of exp(i m base^-t): (E1(-i m / base) - E1(-i m)) / ln base."""
    m = np.asarray(distance, dtype=float)
    return (exp1(-1j * m / base) - exp1(-1j * m)) / np.log(base)


def powers(distance: Array, exponent: float) -> Array:
    """The integral of exp(i m t^a): m^(-1/a) / a times that of exp(iu) u^(1/a - 1), u from 0 to m.

    From 0 to infinity the latter is Gamma(1/a) exp(i pi / 2a); from m on, along the imaginary
    axis, nothing oscillates and Gauss-Laguerre serves. Near 0 Gauss-Legendre serves as it is.
    """
    m, s = np.asarray(distance, dtype=float), 1 / exponent
    node, weight = np.polynomial.legendre.leggauss(NODES)
    t = (node + 1) / 2
    near = np.exp(1j * np.multiply.outer(m, t**exponent)) @ weight / 2
    node, weight = np.polynomial.laguerre.laggauss(NODES)
    rest = 1j * np.exp(1j * m) * ((m[..., None] + 1j * node) ** (s - 1) @ weight)
    far = s * m**-s * (gamma(s) * np.exp(0.5j * np.pi * s) - rest)
    return np.where(m < NEAR, near, far)
