"""The figures of an inspection, by section."""

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.inspect.encoding.decay import LONGER, SHARE, curve, effective_windows, reach, samples
from posenc.inspect.encoding.hooks import code, line, scores
from posenc.inspect.encoding.subject import Subject
from posenc.inspect.encoding.wave_pictures import bound, comparison, distances, own_waves
from posenc.inspect.encoding.wave_pictures import wavelengths as wavelengths_of
from posenc.inspect.lines import PER_FRAME, chart, frame
from posenc.inspect.lines import line as drawn_line
from posenc.inspect.maps import map_figure
from posenc.report.chart import Subplot, VerticalLine
from posenc.report.heat_map import HeatPanel
from posenc.report.vega_figure import Figure

HEADINGS: dict[str, str] = {
    "codes": "Codes",
    "scores": "Relative positions",
    "decay": "Decay with distance",
    "past_l": "Past the training length",
    "low_precision": "Low precision",
    "cost": "Weights and cost",
}
POSITIONS = 128
SIDE = 12
DISTANCE = "Distance (tokens)"


def pictures(subjects: Sequence[Subject]) -> list[Figure]:
    """Every figure that there is something to show in."""
    made = [
        codes(subjects),
        planes(subjects),
        expected(subjects),
        comparison(),
        own_waves(subjects),
        biases(subjects),
        buckets(subjects),
        wavelengths_of(subjects),
        bound(subjects),
    ]
    return [picture for picture in made if picture is not None]


def codes(subjects: Sequence[Subject]) -> Figure | None:
    """The code matrix of each encoding that adds to tokens or turns queries."""
    frames = []
    for subject in subjects:
        length = min(POSITIONS, subject.limit or POSITIONS)
        found = code(subject.encoding, subject.positions(length))
        if found is not None:
            rows, columns = range(length), range(found.shape[1])
            frames.append(HeatPanel(subject.label, found.numpy(), rows, columns))
    reading = (
        "What is added to a token at each position or, of rotations, a query of ones as it is"
        " turned there (first head). Red is above zero, blue below, each panel on its own scale."
    )
    names = ("Position", "Channel", "value")
    title = "Codes by position and channel"
    return map_figure("codes", "code_matrix", title, reading, names, frames) if frames else None


def planes(subjects: Sequence[Subject]) -> Figure | None:
    """The expected score of equal contents on a plane, for encodings that take two axes."""
    found = [(subject, plane(subject)) for subject in subjects]
    side = range(-SIDE, SIDE + 1)
    frames = [
        HeatPanel(s.label, values.numpy(), side, side) for s, values in found if values is not None
    ]
    reading = (
        "How much the expected score of a token for one of equal contents, rows and columns away,"
        " is above or below that for itself (blue: less), mean of heads."
    )
    names = ("Rows away", "Columns away", "score above that of distance 0")
    title = "Two axes"
    return map_figure("scores", "planes", title, reading, names, frames) if frames else None


@torch.no_grad()
def plane(subject: Subject) -> Tensor | None:
    """Expected scores over a square [side, side] less that at its middle; None for one axis."""
    line_ = torch.arange(-SIDE, SIDE + 1)
    square = torch.cartesian_prod(line_, line_)
    points = torch.cat([square, torch.zeros(1, 2, dtype=torch.long)])[None] + SIDE
    host, total = subject.encoding.geometry, torch.zeros(len(square) + 1, dtype=torch.float64)
    said = samples(host.head_width).repeat(1, host.heads)
    try:
        for row in torch.cat([said, -said]) if subject.encoding.overrides("embed") else said:
            x = row.expand(1, points.shape[1], -1)
            k = x.unflatten(-1, (host.heads, host.head_width)).transpose(1, 2)
            total += scores(subject.encoding, x, k, k, points.double())[0].mean(0)
    except ValueError:
        return None
    count = len(said) * (2 if subject.encoding.overrides("embed") else 1)
    found = (total[:-1] - total[-1]) / count
    return None if found.abs().max() == 0 else found.view(len(line_), -1)


def expected(subjects: Sequence[Subject]) -> Figure:
    """The expected score of equal contents by distance, less that at distance 0."""
    frames = []
    for start in range(0, len(subjects), PER_FRAME):
        lines = []
        for i, subject in enumerate(subjects[start : start + PER_FRAME]):
            by_distance = curve(subject, reach(subject), equal=True).mean(0)
            at = distances(len(by_distance) - 1).astype(int)
            points = [(n, float(by_distance[n] - by_distance[0])) for n in at]
            lines.append(drawn_line(subject.label, points, i))
        frames.append(frame("", lines, group=str(start)))
    reading = (
        "The score that a token expects for one of equal contents so far back, less that for"
        " itself; contents of unit variance, mean of heads of the first layer."
    )
    axes = (DISTANCE, "score below that at distance 0")
    return chart("decay", "expected", "Decay with distance", reading, axes, frames)


def biases(subjects: Sequence[Subject]) -> Figure | None:
    """The bias of each head by distance, with the narrowest and the widest effective window."""
    frames = [made for subject in subjects if (made := _biases(subject)) is not None]
    reading = (
        "What is added to the score of each head where all tokens say the same. Marked, the"
        f" effective windows: the nearest tokens that get {SHARE:.0%} of the weight where contents"
        " say nothing, in the head with the narrowest and in that with the widest."
    )
    axes = (DISTANCE, "bias")
    if not frames:
        return None
    return chart("decay", "biases", "Bias by distance and head", reading, axes, frames)


def _biases(subject: Subject) -> Subplot | None:
    length = reach(subject)
    found = line(subject.encoding, subject.positions(length), length - 1)
    if found is None or found.abs().max() == 0:
        return None
    at = distances(length - 1).astype(int)
    lines = [
        drawn_line(f"head {i + 1}", [(n, float(row[n])) for n in at], i)
        for i, row in enumerate(found)
    ]
    windows = effective_windows(found, subject.encoding.at_layer(0).window())
    marks = [
        VerticalLine(n, f"{SHARE:.0%} in {n}", row=i)
        for i, n in enumerate((min(windows), max(windows)))
    ]
    return frame(subject.label, lines, marks, group=subject.label)


def buckets(subjects: Sequence[Subject]) -> Figure | None:
    """Which distances share a bias, for encodings where most do."""
    lines = []
    for subject in subjects:
        length = reach(subject)
        found = line(subject.encoding, subject.positions(length), length - 1)
        starts = [] if found is None else first_distances(found)
        if 1 < len(starts) < length // LONGER:
            steps = [(max(1, n), i) for i, n in enumerate(starts)]
            lines.append(
                drawn_line(subject.label, [*steps, (length - 1, len(starts) - 1)], len(lines))
            )
    reading = "Where each bucket of distances begins: all distances of one have the same bias."
    axes = (DISTANCE, "bucket")
    if not lines:
        return None
    return chart("decay", "buckets", "Buckets of distances", reading, axes, [frame("", lines)])


def first_distances(line: Tensor) -> list[int]:
    """The distances at which a line of biases [H, N] takes another value than just before."""
    changes = (line[:, 1:] != line[:, :-1]).any(0).nonzero()[:, 0] + 1
    return [0, *changes.tolist()]
