"""Figures of frequencies: sums of sinusoids by distance, wavelengths, the bound on the base."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.spectra.base_bound import smallest_base
from posenc.inspect.encoding.hook_outputs import sinusoids_of
from posenc.inspect.encoding.inspected_encoding import InspectedEncoding
from posenc.inspect.encoding.oscillatory_integrals import SPECTRA, ContinuousSpectrum, mean_phasor
from posenc.inspect.encoding.score_properties import LONGER
from posenc.inspect.formula_figures import MAX_LINES, formula_figure, formula_line
from posenc.report.chart import Line, Subplot, VerticalLine
from posenc.report.vega_figure import Figure

SHORT, LONG = 64, 16_384
PAIRS = 64
POINTS = 160
AXES = ("Distance (tokens)", "fraction of the value at distance 0")
SPECTRA_READING = (
    f"<p_m, p_n> as a fraction of |p|^2: the oscillatory integral, and the sum over {PAIRS} pairs."
    " Up to 512 tokens only the integral of theta = t crosses zero; powers fall faster at short"
    " range, exponentials at long range, where that of base^-t crosses zero at 0.617 base."
)
SUMS_READING = (
    "The mean of cos(m f) over the encoding's own frequencies f: <p_m, p_n> of sinusoidal"
    " embeddings, or the expected score of equal content of a rotary encoding, as a fraction of"
    " that at distance 0. Dashed: the envelope |mean of exp(i m f)|, the upper bound over all"
    " relative phases of query and key."
)


def compare_spectra() -> Figure:
    """Draw the frequency choices of Su (2021) at short and at long range."""
    subplots = [
        Subplot(f"{name}, up to {last} tokens", _spectrum_lines(last, values), name)
        for name, values in (("Integral", _integral), (f"Sum over {PAIRS} pairs", _sum))
        for last in (SHORT, LONG)
    ]
    title = "Inner products of sinusoidal embeddings by distance, for the frequencies of Su (2021)"
    return formula_figure("decay", "frequencies", title, SPECTRA_READING, AXES, subplots)


def _spectrum_lines(
    last: int, values: Callable[[ContinuousSpectrum, np.ndarray], np.ndarray]
) -> tuple[Line, ...]:
    distances = log_distances(last)
    return tuple(
        formula_line(spectrum.name, zip(distances, values(spectrum, distances), strict=True), i)
        for i, spectrum in enumerate(SPECTRA)
    )


def _integral(spectrum: ContinuousSpectrum, distances: np.ndarray) -> np.ndarray:
    return spectrum.integral(distances).real


def _sum(spectrum: ContinuousSpectrum, distances: np.ndarray) -> np.ndarray:
    return mean_phasor(spectrum.frequencies(PAIRS), distances).real


def log_distances(last: int) -> np.ndarray:
    """Return integers from 1 to `last`, about evenly spaced on a logarithmic axis."""
    return np.unique(np.round(np.geomspace(1, last, POINTS)))


def sinusoid_sums(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the oscillatory sum of each encoding with frequencies, and its envelope."""
    spectra = _with_frequencies(encodings)
    if not spectra:
        return None
    distances = log_distances(LONGER * 4 * max(inspected.train_length for inspected, _ in spectra))
    subplots = []
    for start in range(0, len(spectra), MAX_LINES):
        lines = []
        for i, (inspected, frequencies) in enumerate(spectra[start : start + MAX_LINES]):
            mean, label = mean_phasor(frequencies, distances), inspected.label
            envelope = zip(distances, np.abs(mean), strict=True)
            lines += [
                formula_line(label, zip(distances, mean.real, strict=True), i),
                formula_line(f"{label}, envelope", envelope, i, dashed=True),
            ]
        subplots.append(Subplot("", tuple(lines), "sums"))
    title = "Oscillatory sum over the encoding's frequencies, and its envelope"
    return formula_figure("decay", "oscillatory_sums", title, SUMS_READING, AXES, subplots)


def wavelengths(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the wavelengths of each encoding with frequencies, with L and 4 L."""
    subplots = [_wavelength_subplot(*spectrum) for spectrum in _with_frequencies(encodings)]
    if not subplots:
        return None
    reading = (
        "A pair of channels completes a period in its wavelength. Those right of L complete none in"
        f" training, and take new angles at {LONGER}L. Frequencies of zero have no wavelength."
    )
    axes = ("Wavelength (tokens)", "pair of channels")
    return formula_figure("extrapolation", "wavelengths", "Wavelengths", reading, axes, subplots)


def _wavelength_subplot(inspected: InspectedEncoding, frequencies: np.ndarray) -> Subplot:
    with np.errstate(divide="ignore"):
        lengths = 2 * math.pi / frequencies
    pairs = [(length, i) for i, length in enumerate(lengths) if math.isfinite(length)]
    parts = {
        "a period within L": [pair for pair in pairs if pair[0] <= inspected.train_length],
        "longer than L": [pair for pair in pairs if pair[0] > inspected.train_length],
    }
    lines = [
        formula_line(name, points, i) for i, (name, points) in enumerate(parts.items()) if points
    ]
    far = LONGER * inspected.train_length
    marks = (
        VerticalLine(inspected.train_length, f"L = {inspected.train_length}"),
        VerticalLine(far, f"{LONGER}L", row=1),
    )
    title = f"{inspected.label}: {len(parts['longer than L'])} of {len(lengths)} longer than L"
    return Subplot(title, tuple(lines), inspected.label, marks)


def _with_frequencies(
    encodings: Sequence[InspectedEncoding],
) -> list[tuple[InspectedEncoding, np.ndarray]]:
    """Return the encodings that have frequencies, with those of one axis at the training length."""
    pairs = [(inspected, sinusoids_of(inspected)) for inspected in encodings]
    return [(s, _frequencies(sinusoids, s.length)) for s, sinusoids in pairs if sinusoids]


def _frequencies(sinusoids: SinusoidalFrequencies, length: int) -> np.ndarray:
    with torch.no_grad():
        frequencies, _ = sinusoids.frequencies(1, length, torch.device("cpu"))
    return frequencies[0].numpy()


def base_bound(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the smallest base by context length (Men et al. 2024, eq. 9), and the bases in use."""
    labels: dict[float, list[str]] = {}
    for inspected in encodings:
        spectrum = inspected.config.encoding.get("spectrum") or {}
        if "base" in spectrum and inspected.encoding.at_layer(0).overrides("rotate"):
            labels.setdefault(float(spectrum["base"]), []).append(inspected.label)
    if not labels:
        return None
    head_width, length = encodings[0].encoding.geometry.head_width, encodings[0].length
    lengths = [max(1, length // LONGER), length, LONGER * length]
    bounds, base = [], 1.0
    for n in lengths:
        base = smallest_base(head_width, n, base)
        bounds.append((n, base))
    lines = [formula_line(f"bound at head width {head_width}", bounds, 0)]
    for i, (base, names) in enumerate(labels.items(), 1):
        lines.append(formula_line(", ".join(names), [(n, base) for n in lengths], i, dashed=True))
    reading = (
        "With a base below the bound, equal content does not outscore random content, on average,"
        " at every distance up to the context length (Men et al. 2024, eq. 9)."
    )
    title, axes = "Smallest base for a context length", ("Context length (tokens)", "base")
    subplots = [Subplot("", tuple(lines), "base")]
    return formula_figure("extrapolation", "base_bound", title, reading, axes, subplots, ratio=True)
