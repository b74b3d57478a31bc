"""Figures for the report on a trained model: a panel for each layer, and a line for each head."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite, pi

from posenc.inspect.plain_figures import plain_line
from posenc.report.chart import Chart, Subplot, VerticalLine
from posenc.report.encoding_styles import DASHES, Style, encoding_style, sweep_styles
from posenc.report.line_plot import line_figure
from posenc.report.table import records_csv
from posenc.report.vega_figure import Figure
from posenc.runs.row_types import Row

MIN_DRAWN_WEIGHT = 1e-6
MAX_DRAWN_PARAMETERS = 6
DISTANCE = "Distance (tokens, counted from 1)"
BIAS_COLUMNS = ("length", "layer", "head", "start", "stop", "bias")


def run_figures(rows: dict[str, list[Row]], train_length: int, encoding: str) -> list[Figure]:
    """Return every figure for which there are rows; heads have shades of the encoding's color."""
    style = encoding_style(encoding)
    by_distance, by_position = rows["attention_by_distance"], rows["attention_by_position"]
    charts = [
        ("attention", _distance_chart(by_distance, train_length, style)),
        ("attention", _position_chart(by_position, train_length, style)),
    ]
    if any(row["bias"] for row in by_distance):
        charts.append(("encoding", _bias_chart(by_distance, train_length, style)))
    if any(row["frequency"] for row in rows.get("frequencies", [])):
        charts.append(("rotations", _frequency_chart(rows["frequencies"], train_length, style)))
    if "learned" in rows:
        charts.append(("encoding", _parameter_chart(rows["learned"], style)))
    return [
        line_figure(section, replace(chart, subplots=tuple(s for s in chart.subplots if s.lines)))
        for section, chart in charts
        if chart.lines
    ]


def _distance_chart(rows: Sequence[Row], train_length: int, style: Style) -> Chart:
    """Draw windows of L on the left and the longest windows on the right."""
    longest = _longest_window(rows)
    drawn = [row for row in rows if row["per_key"] > MIN_DRAWN_WEIGHT]
    subplots = []
    for layer in _layers(rows):
        for length in dict.fromkeys((train_length, longest)):
            title, group = f"Layer {layer}, windows of {length} tokens", f"layer {layer}"
            selected = _select(drawn, layer, length)
            subplots.append(_subplot(title, selected, "per_key", group, train_length, style))
    return Chart(
        file_stem="attention_by_distance",
        title="Attention by distance",
        x_title=DISTANCE,
        y_title="Mean weight of a key",
        subplots=tuple(subplots),
        log_y=True,
        caption=(
            "Means over the queries in the second half of windows of L, and over the queries beyond"
            " L in longer windows. The dashed line is the training length. If a head behaves the"
            " same at both lengths, its curves in the two panels are identical. Weights below"
            f" {MIN_DRAWN_WEIGHT:g} are not drawn."
        ),
        csv=records_csv(rows),
    )


def _position_chart(rows: Sequence[Row], train_length: int, style: Style) -> Chart:
    title = "Entropy of attention by the query's position"
    return Chart(
        file_stem="attention_by_position",
        title=f"{title}, windows of {_longest_window(rows)} tokens",
        x_title="Position in the window (tokens)",
        y_title="Entropy of the weights (nats)",
        subplots=_layer_subplots(rows, "entropy", train_length, style),
        caption=(
            "Attention that is spread evenly over n keys has an entropy of ln n. If a head fails at"
            " positions beyond L, its entropy jumps at the dashed line; if its attention spreads"
            " over more and more keys, its entropy keeps increasing."
        ),
        csv=records_csv(rows),
    )


def _bias_chart(rows: Sequence[Row], train_length: int, style: Style) -> Chart:
    return Chart(
        file_stem="bias_by_distance",
        title=f"Bias by distance, windows of {_longest_window(rows)} tokens",
        x_title=DISTANCE,
        y_title="Mean bias of the scores",
        subplots=_layer_subplots(rows, "bias", train_length, style),
        caption=(
            "The mean bias over the queries beyond L (or in the second half of windows of L). The"
            " biases of forget gates and relative keys depend on the text."
        ),
        csv=records_csv([{key: row[key] for key in BIAS_COLUMNS} for row in rows]),
    )


def _frequency_chart(rows: Sequence[Row], train_length: int, style: Style) -> Chart:
    """Draw fractions of the norm on the left and fractions of the variation on the right."""
    longest = _longest_window(rows)
    rotating = [row for row in rows if row["length"] == longest and row["frequency"] > 0]
    subplots = []
    for layer in _layers(rotating):
        for name in ("norm", "variation"):
            title, selected = f"Layer {layer}: {name}", _select(rotating, layer, longest)
            subplots.append(_subplot(title, selected, name, name, train_length, style, _wavelength))
    return Chart(
        file_stem="frequencies",
        title=f"Contribution of each rotary frequency, windows of {longest} tokens",
        x_title="Wavelength (tokens)",
        y_title="Fraction",
        subplots=tuple(subplots),
        caption=(
            "Left: the fraction of |q| |k|, an upper bound on the contribution to the score. Right:"
            " the fraction of the variation of scores over the keys of a query, negative if it"
            " counteracts the other frequencies. To the right of the dashed line, the wavelength"
            " exceeds the training length."
        ),
        csv=records_csv(rows),
    )


def _parameter_chart(rows: Sequence[Row], style: Style) -> Chart:
    names = list(dict.fromkeys(row["parameter"] for row in rows))
    subplots = []
    for name in names[:MAX_DRAWN_PARAMETERS]:
        values = [row for row in rows if row["parameter"] == name]
        lines = [
            plain_line(
                label, [(i, row[key]) for i, row in enumerate(values, 1)], _line_style(style, n, 2)
            )
            for n, (key, label) in enumerate((("initial", "before"), ("trained", "after")))
        ]
        subplots.append(Subplot(f"{name} ({values[0]['quantity']})", tuple(lines), name))
    omitted = ""
    if len(names) > MAX_DRAWN_PARAMETERS:
        omitted = f" Only the first {MAX_DRAWN_PARAMETERS} of {len(names)} parameters are drawn."
    return Chart(
        file_stem="learned",
        title="Trained parameters",
        x_title="Index within the parameter",
        y_title="Value or norm",
        subplots=tuple(subplots),
        caption=f"Values are in the order of the csv file, which lists their indices.{omitted}",
        csv=records_csv(rows),
    )


def _layer_subplots(
    rows: Sequence[Row], column: str, train_length: int, style: Style
) -> tuple[Subplot, ...]:
    """Return a subplot for each layer in the longest windows, all with the same y range."""
    longest = _longest_window(rows)
    return tuple(
        _subplot(
            f"Layer {layer}", _select(rows, layer, longest), column, "all", train_length, style
        )
        for layer in _layers(rows)
    )


def _midpoint(row: Row) -> float:
    """Return the middle of a row's distances or positions, counted from 1."""
    return (row["start"] + row["stop"] + 1) / 2


def _wavelength(row: Row) -> float:
    return 2 * pi / row["frequency"]


def _subplot(
    title: str,
    rows: Sequence[Row],
    column: str,
    y_group: str,
    train_length: int,
    style: Style,
    x: Callable[[Row], float] = _midpoint,
) -> Subplot:
    """Return a subplot of a column, with a line for each head."""
    heads = list(dict.fromkeys(row["head"] for row in rows))
    lines = []
    for n, head in enumerate(heads):
        finite = (row for row in rows if row["head"] == head and isfinite(row[column]))
        points = [(x(row), row[column]) for row in finite]
        if not points:
            continue
        lines.append(plain_line(f"head {head}", points, _line_style(style, n, len(heads))))
    return Subplot(title, tuple(lines), y_group, (VerticalLine(train_length, "L"),))


def _longest_window(rows: Sequence[Row]) -> int:
    """Return the length of the longest windows."""
    return max(row["length"] for row in rows)


def _select(rows: Sequence[Row], layer: int, length: int) -> list[Row]:
    return [row for row in rows if row["layer"] == layer and row["length"] == length]


def _layers(rows: Sequence[Row]) -> list[int]:
    return list(dict.fromkeys(row["layer"] for row in rows))


def _line_style(style: Style, index: int, count: int) -> Style:
    return replace(sweep_styles(style, count)[index], dash=DASHES[index % len(DASHES)])
