"""Figures of frequencies: sums of sinusoids by distance, wavelengths, lower bound on the base.

For frequencies f_0 .. f_{n-1}, the mean of cos(m f_k) is <p_a, p_b> / n at distance m = |a - b| (Su
2021, kexue.fm/archives/8231). With f_k = theta(k / n), as n grows, it tends to the real part of the
integral of exp(i m theta(t)) over t from 0 to 1. The modulus of the integral is an upper bound for
any relative phase of query and key that is the same at all frequencies.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import exp1, gamma

from posenc.encodings.spectra.base_bound import smallest_base
from posenc.inspect.encoding.hook_outputs import find_sinusoidal_frequencies
from posenc.inspect.encoding.inspected_encoding import (
    EXTRAPOLATION_FACTOR,
    InspectedEncoding,
    label_styles,
)
from posenc.inspect.plain_figures import MAX_LINES, plain_figure, plain_line
from posenc.report.chart import Subplot, VerticalLine
from posenc.report.encoding_styles import REFERENCE_STYLE, encoding_style, style_at, sweep_styles
from posenc.report.vega_figure import Figure

SHORT_RANGE, LONG_RANGE = 64, 16_384  # tokens
NUM_PAIRS = 64
NUM_POINTS = 160
AXES = ("Distance (tokens)", "fraction of the value at distance 0")
SPECTRA_CAPTION = (
    "<p_m, p_n> as a fraction of |p|^2: the oscillatory integral, and the sum over"
    f" {NUM_PAIRS} pairs. Up to 512 tokens, only the integral of theta = t crosses zero."
    " Power-law spectra decay faster at short range, and exponential spectra at long range, where"
    " the integral of base^-t crosses zero at a distance of 0.617 base."
)
SUMS_CAPTION = (
    "The mean of cos(m f) over the encoding's frequencies f at distance m. This is <p_a, p_b> of"
    " sinusoidal embeddings with |a - b| = m, or the expected score of identical tokens with a"
    " rotary encoding, as a fraction of its value at distance 0. Dashed: the envelope |mean of"
    " exp(i m f)|, an upper bound for any relative phase of query and key that is the same at all"
    " frequencies."
)
Array = np.ndarray
NUM_QUADRATURE_NODES = 80
NEAR_DISTANCE = 20.0  # tokens; below this distance, Gauss-Legendre quadrature is accurate


def draw_spectra() -> Figure | None:
    """Draw inner products for the frequencies of Su (2021), at short and at long range."""
    subplots = []
    for name in ("Integral", f"Sum over {NUM_PAIRS} pairs"):
        for last in (SHORT_RANGE, LONG_RANGE):
            distances, lines = log_distances(last), []
            for i, spectrum in enumerate(SPECTRA):
                if name == "Integral":
                    values = spectrum.integral(distances)
                else:
                    values = mean_complex_exponential(spectrum.frequencies(NUM_PAIRS), distances)
                points = zip(distances, values.real, strict=True)
                lines.append(plain_line(spectrum.name, points, style_at(i)))
            subplots.append(Subplot(f"{name}, up to {last} tokens", tuple(lines), name))
    title = "Inner products of sinusoidal embeddings by distance, for the frequencies of Su (2021)"
    return plain_figure("decay", "frequencies", title, SPECTRA_CAPTION, AXES, subplots)


def log_distances(last: int) -> np.ndarray:
    """Return integers from 1 to `last`, approximately evenly spaced on a logarithmic axis."""
    return np.unique(np.round(np.geomspace(1, last, NUM_POINTS)).astype(int))


def draw_sinusoid_sums(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the oscillatory sum of each encoding with frequencies, and its envelope."""
    spectra = _with_frequencies(encodings)
    longest = max((inspected.train_length for inspected, _ in spectra), default=1)
    distances = log_distances(EXTRAPOLATION_FACTOR * 4 * longest)
    subplots, styles = [], label_styles(encodings)
    for start in range(0, len(spectra), MAX_LINES):
        lines = []
        for inspected, frequencies in spectra[start : start + MAX_LINES]:
            mean, label = mean_complex_exponential(frequencies, distances), inspected.label
            envelope = zip(distances, np.abs(mean), strict=True)
            lines += [
                plain_line(label, zip(distances, mean.real, strict=True), styles[label]),
                plain_line(f"{label}, envelope", envelope, styles[label], dashed=True),
            ]
        subplots.append(Subplot("", tuple(lines), "sums"))
    title = "Oscillatory sum over the encoding's frequencies, and its envelope"
    return plain_figure("decay", "oscillatory_sums", title, SUMS_CAPTION, AXES, subplots)


def draw_wavelengths(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the wavelengths of each encoding with frequencies, and vertical lines at L and 4L."""
    subplots = [_wavelength_subplot(*spectrum) for spectrum in _with_frequencies(encodings)]
    caption = (
        "A pair of channels completes a period in one wavelength. Pairs to the right of L complete"
        f" no period in training and reach new angles at {EXTRAPOLATION_FACTOR}L, unless a window"
        " or lower frequencies in longer sequences prevent it. Frequencies of zero have no"
        " wavelength."
    )
    axes = ("Wavelength (tokens)", "pair of channels")
    return plain_figure("extrapolation", "wavelengths", "Wavelengths", caption, axes, subplots)


def _wavelength_subplot(inspected: InspectedEncoding, frequencies: np.ndarray) -> Subplot:
    with np.errstate(divide="ignore"):
        wavelengths = 2 * math.pi / frequencies
    points = [
        (wavelength, i) for i, wavelength in enumerate(wavelengths) if math.isfinite(wavelength)
    ]
    groups = {
        "up to L": [point for point in points if point[0] <= inspected.train_length],
        "longer than L": [point for point in points if point[0] > inspected.train_length],
    }
    styles = sweep_styles(encoding_style(inspected.name), len(groups))
    lines = [
        plain_line(name, group, style)
        for style, (name, group) in zip(styles, groups.items(), strict=True)
        if group
    ]
    vertical_lines = (
        VerticalLine(inspected.train_length, f"L = {inspected.train_length}"),
        VerticalLine(
            EXTRAPOLATION_FACTOR * inspected.train_length, f"{EXTRAPOLATION_FACTOR}L", row=1
        ),
    )
    num_longer = len(groups["longer than L"])
    title = f"{inspected.label}: {num_longer} of {len(wavelengths)} longer than L"
    return Subplot(title, tuple(lines), inspected.label, vertical_lines)


def _with_frequencies(
    encodings: Sequence[InspectedEncoding],
) -> list[tuple[InspectedEncoding, np.ndarray]]:
    """Return the encodings that have frequencies, with these frequencies at the training length."""
    spectra = []
    for inspected in encodings:
        sinusoids = find_sinusoidal_frequencies(inspected)
        if sinusoids is not None:
            cpu = torch.device("cpu")
            frequencies, _ = sinusoids.frequencies(1, inspected.train_length, cpu)
            spectra.append((inspected, frequencies[0].detach().numpy()))
    return spectra


def draw_base_bound(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the lower bound on the base (Men et al. 2024, eq. 9) and the bases of the encodings."""
    labels: dict[float, list[str]] = {}
    for inspected in encodings:
        spectrum = inspected.config.encoding.get("spectrum") or {}
        if "base" in spectrum and inspected.encoding.at_layer(0).overrides("rotate"):
            labels.setdefault(float(spectrum["base"]), []).append(inspected.label)
    if not labels:
        return None
    train_lengths = sorted({inspected.train_length for inspected in encodings})
    shortest, longest = train_lengths[0], train_lengths[-1]
    lengths = [
        max(1, shortest // EXTRAPOLATION_FACTOR),
        *train_lengths,
        EXTRAPOLATION_FACTOR * longest,
    ]
    lines = []
    for head_dim in sorted({inspected.encoding.geometry.head_dim for inspected in encodings}):
        bounds, base = [], 1.0
        with suppress(ValueError):  # no base qualifies for a longer context
            for n in lengths:
                base = smallest_base(head_dim, n, base)
                bounds.append((n, base))
        if bounds:
            lines.append(plain_line(f"bound at head dimension {head_dim}", bounds, REFERENCE_STYLE))
    styles = label_styles(encodings)
    for base, names in labels.items():
        points, style = [(n, base) for n in lengths], styles[names[0]]
        lines.append(plain_line(", ".join(names), points, style, dashed=True))
    caption = (
        "With a base below the bound, there is a distance within the context length at which an"
        " identical token does not outscore a random token on average (Men et al. 2024, eq. 9)."
    )
    title, axes = "Smallest base for a context length", ("Context length (tokens)", "base")
    subplots = [Subplot("", tuple(lines), "base")]
    return plain_figure("extrapolation", "base_bound", title, caption, axes, subplots, log_y=True)


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

    a is the exponent, and u runs from 0 to m. The integral from 0 to infinity is
    Gamma(1/a) exp(i pi / 2a). The integral from m to infinity is evaluated parallel to the
    imaginary axis, where it does not oscillate and Gauss-Laguerre quadrature converges. At small m,
    Gauss-Legendre quadrature is accurate.
    """
    m, s = np.asarray(distance, dtype=float), 1 / exponent
    node, weight = np.polynomial.legendre.leggauss(NUM_QUADRATURE_NODES)
    t = (node + 1) / 2
    near = np.exp(1j * np.multiply.outer(m, t**exponent)) @ weight / 2
    node, weight = np.polynomial.laguerre.laggauss(NUM_QUADRATURE_NODES)
    tail = 1j * np.exp(1j * m) * ((m[..., None] + 1j * node) ** (s - 1) @ weight)
    far = s * m**-s * (gamma(s) * np.exp(0.5j * np.pi * s) - tail)
    return np.where(m < NEAR_DISTANCE, near, far)
