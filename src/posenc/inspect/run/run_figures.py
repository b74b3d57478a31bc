"""The figures of a run's page: a panel for each layer, a line for each head."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import pi

from posenc.inspect.run.observe import Row
from posenc.report.chart import Chart, Line, PlotPoint, Subplot, VerticalLine
from posenc.report.confidence import exact
from posenc.report.encoding_styles import DASHES, Style, style_at, sweep_styles
from posenc.report.line_plot import line_figure
from posenc.report.table import csv_text
from posenc.report.vega_figure import Figure

MIN_WEIGHT = 1e-6  # of a key that is drawn
MAX_PARAMETERS = 6  # that are drawn
DISTANCE = "Distance (tokens, counted from 1)"
BIAS_COLUMNS = ("length", "layer", "head", "start", "stop", "bias")
Coordinate = Callable[[Row], float]


def run_figures(rows: dict[str, list[Row]], train_length: int) -> list[Figure]:
    """Return every figure that there are rows for."""
    distances, positions = rows["attention_by_distance"], rows["attention_by_position"]
    charts = [
        ("attention", _by_distance(distances, train_length)),
        ("attention", _by_position(positions, train_length)),
    ]
    if any(row["bias"] for row in distances):
        charts.append(("encoding", _bias(distances, train_length)))
    if any(row["frequency"] for row in rows.get("frequencies", [])):
        charts.append(("rotations", _frequencies(rows["frequencies"], train_length)))
    if "learned" in rows:
        charts.append(("encoding", _learned(rows["learned"])))
    return [line_figure(section, chart) for section, chart in charts]


def _by_distance(rows: Sequence[Row], train_length: int) -> Chart:
    """Draw windows of L on the left, the longest on the right."""
    lengths = {row["length"] for row in rows}
    subplots = [
        _subplot(
            f"Layer {layer}, windows of {length} tokens",
            [row for row in _select(rows, layer, length) if row["per_key"] > MIN_WEIGHT],
            (_middle, lambda row: row["per_key"]),
            f"layer {layer}",
            train_length,
        )
        for layer in _layers(rows)
        for length in dict.fromkeys((min(lengths), max(lengths)))
    ]
    return Chart(
        file="attention_by_distance",
        title="Attention by distance",
        x_title=DISTANCE,
        y_title="Mean weight of a key",
        subplots=tuple(subplots),
        log_y=True,
        caption=(
            "Queries of the second half of windows of L, and those beyond L in longer windows. The"
            " dashed line is the training length. A head that does the same at both lengths has the"
            f" same line. Weights below {MIN_WEIGHT:g} are not drawn."
        ),
        csv=_csv(rows),
    )


def _by_position(rows: Sequence[Row], train_length: int) -> Chart:
    longest = max(row["length"] for row in rows)
    return Chart(
        file="attention_by_position",
        title=f"Entropy of attention by the query's position, windows of {longest} tokens",
        x_title="Position in the window (tokens)",
        y_title="Entropy of the weights (nats)",
        subplots=_layer_subplots(rows, "entropy", train_length),
        caption=(
            "Attention that is spread evenly over n keys has an entropy of ln n. The entropy of a"
            " head that fails at positions beyond L jumps at the dashed line; that of a head whose"
            " attention spreads over more keys keeps rising."
        ),
        csv=_csv(rows),
    )


def _bias(rows: Sequence[Row], train_length: int) -> Chart:
    longest = max(row["length"] for row in rows)
    return Chart(
        file="bias_by_distance",
        title=f"Bias by distance, windows of {longest} tokens",
        x_title=DISTANCE,
        y_title="Mean bias of the scores",
        subplots=_layer_subplots(rows, "bias", train_length),
        caption=(
            "The bias of slopes, buckets and tables, and that of gates and relative keys on this"
            " text; mean over the queries beyond L (in windows of L, of the second half)."
        ),
        csv=_csv([{key: row[key] for key in BIAS_COLUMNS} for row in rows]),
    )


def _frequencies(rows: Sequence[Row], train_length: int) -> Chart:
    """Draw the fraction of the norm on the left, that of the variation on the right."""
    longest = max(row["length"] for row in rows)
    rotating = [row for row in rows if row["length"] == longest and row["frequency"] > 0]
    subplots = [
        _subplot(
            f"Layer {layer}: {name}",
            _select(rotating, layer, longest),
            (lambda row: 2 * pi / row["frequency"], lambda row, name=name: row[name]),
            name,
            train_length,
        )
        for layer in _layers(rotating)
        for name in ("norm", "variation")
    ]
    return Chart(
        file="frequencies",
        title=f"Contribution of each rotary frequency, windows of {longest} tokens",
        x_title="Wavelength (tokens)",
        y_title="Fraction",
        subplots=tuple(subplots),
        caption=(
            "Left: the fraction of |q| |k|, an upper bound on the contribution to the score. Right:"
            " the fraction of what differs between the keys of a query. Right of the dashed line"
            " the wavelength exceeds the training length."
        ),
        csv=_csv(rows),
    )


def _learned(rows: Sequence[Row]) -> Chart:
    names = list(dict.fromkeys(row["parameter"] for row in rows))
    subplots = []
    for name in names[:MAX_PARAMETERS]:
        values = [row for row in rows if row["parameter"] == name]
        lines = [
            Line(
                label,
                _style(n, 2),
                tuple(PlotPoint(i + 1.0, exact(r[key])) for i, r in enumerate(values)),
            )
            for n, (key, label) in enumerate((("initial", "before"), ("trained", "after training")))
        ]
        subplots.append(Subplot(f"{name} ({values[0]['quantity']})", tuple(lines), name))
    omitted = f" First {MAX_PARAMETERS} of {len(names)} parameters." * (len(names) > MAX_PARAMETERS)
    return Chart(
        file="learned",
        title="Trained parameters",
        x_title="Index within the parameter",
        y_title="Value or norm",
        subplots=tuple(subplots),
        caption=f"In the order of the csv, which has the index of each value.{omitted}",
        csv=_csv(rows),
    )


def _layer_subplots(rows: Sequence[Row], column: str, train_length: int) -> tuple[Subplot, ...]:
    """Return a subplot for each layer in the longest windows, all with the same range of y."""
    longest = max(row["length"] for row in rows)
    point = _middle, lambda row: row[column]
    return tuple(
        _subplot(f"Layer {layer}", _select(rows, layer, longest), point, "all", train_length)
        for layer in _layers(rows)
    )


def _subplot(
    title: str,
    rows: Sequence[Row],
    point: tuple[Coordinate, Coordinate],
    y_group: str,
    train_length: int,
) -> Subplot:
    """Return a line for each head, through the `point` (x, y) of each row."""
    x, y = point
    heads = list(dict.fromkeys(row["head"] for row in rows))
    lines = []
    for n, head in enumerate(heads):
        dots = tuple(PlotPoint(x(row), exact(y(row))) for row in rows if row["head"] == head)
        lines.append(Line(f"head {head}", _style(n, len(heads)), dots))
    return Subplot(title, tuple(lines), y_group, (VerticalLine(train_length, "L"),))


def _middle(row: Row) -> float:
    """Return the middle of a row's distances or positions, counted from 1."""
    return (row["start"] + row["stop"] + 1) / 2


def _select(rows: Sequence[Row], layer: int, length: int) -> list[Row]:
    return [row for row in rows if row["layer"] == layer and row["length"] == length]


def _layers(rows: Sequence[Row]) -> list[int]:
    return list(dict.fromkeys(row["layer"] for row in rows))


def _style(index: int, count: int) -> Style:
    return replace(sweep_styles(style_at(0), count)[index], dash=DASHES[index % len(DASHES)])


def _csv(rows: Sequence[Row]) -> str:
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)])
