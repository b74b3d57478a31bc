"""Figures of frequencies: article 000's comparison, wavelengths, and the bound on the base."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.spectra.base_bound import smallest_base
from posenc.inspect.encoding.curves import CHOICES, Choice, mean_wave
from posenc.inspect.encoding.decay import LONGER
from posenc.inspect.encoding.hooks import waves_of
from posenc.inspect.encoding.subject import Subject
from posenc.inspect.lines import PER_FRAME, chart, frame, line
from posenc.report.chart import Line, Subplot, VerticalLine
from posenc.report.vega_figure import Figure

SHORT, LONG = 64, 16_384
PAIRS = 64
POINTS = 160
AXES = ("Distance (tokens)", "share of that at distance 0")
COMPARISON = (
    f"<p_m, p_n> as a share of |p|^2: the oscillatory integral, and the sum over {PAIRS} pairs. Up"
    " to 512 tokens the integral of theta = t alone crosses zero; powers fall faster at short"
    " range, exponentials at long range, where that of base^-t crosses zero at 0.617 base."
)
OWN = (
    "The mean of cos(m f) over the encoding's own frequencies f, that is <p_m, p_n> of a code or"
    " the expected score of equal contents of a rotation, as a share of that at distance 0. Dashed,"
    " the envelope |mean of exp(i m f)|: no relative phase of query and key can make more of it."
)


def comparison() -> Figure:
    """Article 000's frequency choices on one axis, at short range and at long."""
    frames = [
        frame(f"{name}, to {last} tokens", _choices(last, values), group=name)
        for name, values in (("Integral", _integral), (f"Sum over {PAIRS} pairs", _sum))
        for last in (SHORT, LONG)
    ]
    title = "Inner products of codes by distance, for article 000's frequencies"
    return chart("decay", "frequencies", title, COMPARISON, AXES, frames)


def _choices(last: int, values: Callable[[Choice, np.ndarray], np.ndarray]) -> list[Line]:
    at = distances(last)
    return [
        line(choice.name, zip(at, values(choice, at), strict=True), i)
        for i, choice in enumerate(CHOICES)
    ]


def _integral(choice: Choice, at: np.ndarray) -> np.ndarray:
    return choice.integral(at).real


def _sum(choice: Choice, at: np.ndarray) -> np.ndarray:
    return mean_wave(choice.frequencies(PAIRS), at).real


def distances(last: int) -> np.ndarray:
    """Whole distances from 1 to the last, about evenly spaced in their logarithms."""
    return np.unique(np.round(np.geomspace(1, last, POINTS)))


def own_waves(subjects: Sequence[Subject]) -> Figure | None:
    """The oscillatory curve of each encoding with frequencies, and its envelope."""
    found = [(subject, waves) for subject in subjects if (waves := waves_of(subject))]
    at, frames = distances(LONGER * 4 * max((s.length for s, _ in found), default=1)), []
    for start in range(0, len(found), PER_FRAME):
        lines = []
        for i, (subject, waves) in enumerate(found[start : start + PER_FRAME]):
            wave = mean_wave(frequencies(waves, subject.length), at)
            lines.append(line(subject.label, zip(at, wave.real, strict=True), i))
            envelope = zip(at, np.abs(wave), strict=True)
            lines.append(line(f"{subject.label}, envelope", envelope, i, dashes=1))
        frames.append(frame("", lines))
    title = "Oscillatory sum over the encoding's frequencies, and its envelope"
    return chart("decay", "waves", title, OWN, AXES, frames) if frames else None


def wavelengths(subjects: Sequence[Subject]) -> Figure | None:
    """The wavelengths of each encoding with frequencies, against L and 4 L."""
    frames = [_wavelengths(subject, waves) for subject in subjects if (waves := waves_of(subject))]
    if not frames:
        return None
    reading = (
        "A pair of channels turns once in its wavelength. Those right of L never complete a turn in"
        f" training, and at {LONGER}L meet angles that they have not seen. Frequencies of zero,"
        " which never turn, have no wavelength."
    )
    axes = ("Wavelength (tokens)", "pair of channels")
    return chart("past_l", "wavelengths", "Wavelengths", reading, axes, frames)


def _wavelengths(subject: Subject, waves: SinusoidalFrequencies) -> Subplot:
    found = 2 * math.pi / frequencies(waves, subject.length)
    pairs = [(at, pair) for pair, at in enumerate(found) if math.isfinite(at)]
    parts = {
        "turn within L": [(at, pair) for at, pair in pairs if at <= subject.length],
        "no turn within L": [(at, pair) for at, pair in pairs if at > subject.length],
    }
    lines = [line(name, points, i) for i, (name, points) in enumerate(parts.items()) if points]
    far = LONGER * subject.length
    marks = [
        VerticalLine(subject.length, f"L = {subject.length}"),
        VerticalLine(far, f"{LONGER}L", row=1),
    ]
    heading = f"{subject.label}: {len(parts['no turn within L'])} of {len(found)} beyond L"
    return frame(heading, lines, marks, group=subject.label)


def frequencies(waves: SinusoidalFrequencies, length: int) -> np.ndarray:
    """Frequencies of one axis in a sequence of so many tokens."""
    with torch.no_grad():
        found, _ = waves.frequencies(1, length, torch.device("cpu"))
    with np.errstate(divide="ignore"):
        return found[0].numpy()


def bound(subjects: Sequence[Subject]) -> Figure | None:
    """The least base that keeps similar tokens ahead, by context length, and the bases here."""
    bases = {
        subject.label: float(subject.config.encoding.spectrum.base)
        for subject in subjects
        if "base" in (subject.config.encoding.get("spectrum") or {})
        and subject.encoding.at_layer(0).overrides("rotate")
    }
    if not bases:
        return None
    host, length = subjects[0].encoding.geometry, subjects[0].length
    at = [max(1, length // LONGER), length, LONGER * length]
    least, base = [], 1.0
    for n in at:
        base = smallest_base(host.head_width, n, base)
        least.append((n, base))
    lines = [line(f"bound at head width {host.head_width}", least, 0)]
    for i, (base, labels) in enumerate(_by_base(bases).items()):
        lines.append(line(", ".join(labels), [(n, base) for n in at], i + 1, dashes=1))
    reading = (
        "Below the bound, equal contents no longer outscore random ones at every distance up to the"
        " context length, on average (Men et al. 2024, eq. 9)."
    )
    axes = ("Context length (tokens)", "base")
    title = "The least base for a context length"
    return chart("past_l", "base_bound", title, reading, axes, [frame("", lines)], ratio=True)


def _by_base(bases: dict[str, float]) -> dict[float, list[str]]:
    found: dict[float, list[str]] = {}
    for label, base in bases.items():
        found.setdefault(base, []).append(label)
    return found
