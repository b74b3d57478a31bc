"""Figures of encodings: position vectors, 2-D scores, decay with distance, biases, buckets."""

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.inspect.encoding.frequency_figures import (
    draw_base_bound,
    draw_sinusoid_sums,
    draw_spectra,
    draw_wavelengths,
    log_distances,
)
from posenc.inspect.encoding.hook_outputs import (
    bias_by_distance,
    last_query_scores,
    position_vectors,
)
from posenc.inspect.encoding.inspected_encoding import (
    EXTRAPOLATION_FACTOR,
    InspectedEncoding,
    label_styles,
)
from posenc.inspect.encoding.score_properties import (
    WINDOW_WEIGHT,
    content_samples,
    effective_windows,
    expected_scores,
)
from posenc.inspect.plain_figures import MAX_LINES, heat_map_figure, plain_figure, plain_line
from posenc.report.chart import Subplot, VerticalLine
from posenc.report.encoding_styles import encoding_style, sweep_styles
from posenc.report.heat_map import HeatPanel
from posenc.report.vega_figure import Figure

MAX_POSITIONS = 128
MAX_OFFSET = 12  # in rows and in columns
DISTANCE = "Distance (tokens)"


def encoding_figures(encodings: Sequence[InspectedEncoding]) -> list[Figure]:
    """Return the figure of Su's (2021) spectra, and those that apply to any of the encodings."""
    figures = [
        draw_vectors(encodings),
        draw_2d_scores(encodings),
        draw_decay(encodings),
        draw_spectra(),
        draw_sinusoid_sums(encodings),
        draw_biases(encodings),
        draw_buckets(encodings),
        draw_wavelengths(encodings),
        draw_base_bound(encodings),
    ]
    return [figure for figure in figures if figure is not None]


def draw_vectors(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the position vectors of each encoding that has them."""
    panels = []
    for inspected in encodings:
        length = inspected.clamp_length(MAX_POSITIONS)
        vectors = position_vectors(inspected.encoding, inspected.positions(length))
        if vectors is not None:
            rows, columns = range(length), range(vectors.shape[1])
            panels.append(HeatPanel(inspected.label, vectors.numpy(), rows, columns))
    caption = (
        "The vector that is added to a token embedding at each position or, for rotary encodings,"
        " an all-ones query vector after rotation (first head). Red is positive, blue is negative;"
        " each panel has its own scale."
    )
    title, axes = "Position vectors", ("Position", "Channel", "value")
    return heat_map_figure("vectors", "position_vectors", title, caption, axes, panels)


def draw_2d_scores(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw expected scores of identical tokens by row and column offset, for 2-D encodings."""
    offsets = range(-MAX_OFFSET, MAX_OFFSET + 1)
    panels = [
        HeatPanel(inspected.label, scores.numpy(), offsets, offsets)
        for inspected in encodings
        if (scores := scores_by_offset(inspected)) is not None
    ]
    caption = (
        "The expected score between a token and an identical token at that row and column offset,"
        " minus the score between the token and itself (blue: lower); mean over heads."
    )
    axes = ("Row offset", "Column offset", "score relative to distance 0")
    return heat_map_figure("scores", "scores_2d", "Scores in two dimensions", caption, axes, panels)


@torch.no_grad()
def scores_by_offset(inspected: InspectedEncoding) -> Tensor | None:
    """Return expected scores [2 MAX_OFFSET + 1, 2 MAX_OFFSET + 1] by row and column offset.

    Scores are relative to offset (0, 0). Returns None if the encoding does not support two axes or
    ignores them.
    """
    offsets = torch.arange(-MAX_OFFSET, MAX_OFFSET + 1)
    grid = torch.cartesian_prod(offsets, offsets)
    center = torch.zeros(1, 2, dtype=torch.long)
    points = torch.cat([grid, center])[None] + MAX_OFFSET
    geometry, content = inspected.encoding.geometry, content_samples(inspected)
    total = torch.zeros(len(grid) + 1, dtype=torch.float64)
    try:
        for sample in content:
            x = sample.expand(1, points.shape[1], -1)
            k = x.unflatten(-1, (geometry.heads, geometry.head_dim)).transpose(1, 2)
            total += last_query_scores(inspected.encoding, x, k, k, points.double())[0].mean(0)
    except Exception:  # a user's encoding may raise anything for coordinates
        return None
    scores = (total[:-1] - total[-1]) / len(content)
    return None if scores.abs().max() == 0 else scores.view(len(offsets), -1)


def draw_decay(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the expected score of identical tokens by distance, relative to distance 0."""
    subplots = []
    styles = label_styles(encodings)
    for start in range(0, len(encodings), MAX_LINES):
        lines = []
        for inspected in encodings[start : start + MAX_LINES]:
            scores = expected_scores(
                inspected, inspected.extrapolation_length, identical=True
            ).mean(0)
            points = [(n, float(scores[n] - scores[0])) for n in log_distances(len(scores) - 1)]
            lines.append(plain_line(inspected.label, points, styles[inspected.label]))
        subplots.append(Subplot("", tuple(lines), str(start)))
    caption = (
        "The expected score between a token and an identical token at that distance, minus the"
        " score between the token and itself. Token content has unit variance; scores are means"
        " over the heads of the first layer."
    )
    axes = (DISTANCE, "score relative to distance 0")
    title = "Decay with distance"
    return plain_figure("decay", "expected_scores", title, caption, axes, subplots)


def draw_biases(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the bias of each head, with lines at the narrowest and widest effective windows."""
    subplots = [
        _bias_subplot(inspected, bias)
        for inspected in encodings
        if (bias := bias_by_distance(inspected, inspected.extrapolation_length)) is not None
        and bias.any()
    ]
    caption = (
        "The bias of each head if all tokens are identical. The vertical lines mark the narrowest"
        " and the widest effective window over all heads: the number of nearest tokens that receive"
        f" {WINDOW_WEIGHT:.0%} of the attention weight if only positions matter."
    )
    title, axes = "Bias by distance and head", (DISTANCE, "bias")
    return plain_figure("decay", "biases", title, caption, axes, subplots)


def _bias_subplot(inspected: InspectedEncoding, bias: Tensor) -> Subplot:
    distances = log_distances(bias.shape[1] - 1)
    styles = sweep_styles(encoding_style(inspected.name), len(bias))
    lines = [
        plain_line(f"head {i}", [(n, float(row[n])) for n in distances], styles[i])
        for i, row in enumerate(bias)
    ]
    windows = effective_windows(inspected.encoding.at_layer(0), bias)
    marks = [
        VerticalLine(n, f"{WINDOW_WEIGHT:.0%} within {n} tokens", row=i)
        for i, n in enumerate((min(windows), max(windows)))
    ]
    return Subplot(inspected.label, tuple(lines), inspected.label, tuple(marks))


def draw_buckets(encodings: Sequence[InspectedEncoding]) -> Figure | None:
    """Draw the buckets of distances that share a bias, for encodings with few buckets."""
    lines, styles = [], label_styles(encodings)
    for inspected in encodings:
        length = inspected.extrapolation_length
        bias = bias_by_distance(inspected, length)
        starts = [] if bias is None else bucket_starts(bias)
        if 1 < len(starts) < length // EXTRAPOLATION_FACTOR:
            points = [(max(1, n), i) for i, n in enumerate(starts)]
            points += [(length - 1, len(starts) - 1)]
            lines.append(plain_line(inspected.label, points, styles[inspected.label]))
    caption = (
        "The first distance of each bucket; all distances of a bucket have the same bias. Distance"
        " 0 is drawn at 1."
    )
    subplots = [Subplot("", tuple(lines), "buckets")] if lines else []
    axes = (DISTANCE, "bucket")
    return plain_figure("decay", "buckets", "Distance buckets", caption, axes, subplots)


def bucket_starts(bias: Tensor) -> list[int]:
    """Return 0 and every distance at which a bias [H, N] differs from its previous value."""
    changes = (bias[:, 1:] != bias[:, :-1]).any(0).nonzero()[:, 0] + 1
    return [0, *changes.tolist()]
