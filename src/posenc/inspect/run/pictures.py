"""The figures of a run's page: a panel for each layer, a line for each head."""

from collections.abc import Sequence
from math import pi

from posenc.inspect.run.measure import Measured
from posenc.inspect.run.panels import frame, layers, lengths, middle, only, style, to_csv
from posenc.inspect.run.tables import Row
from posenc.report.chart import Chart, Dot, Line, Subplot
from posenc.report.confidence import exact
from posenc.report.line_plot import line_figure
from posenc.report.vega_figure import Figure

FAINTEST = 1e-6  # weight of a key that is drawn
LARGEST = 6  # parameters that are drawn


def pictures(found: Measured, train_length: int) -> list[Figure]:
    """Every figure that there are rows for."""
    rows = found.tables
    made = [
        ("attention", _by_distance(rows["attention_by_distance"], train_length)),
        ("attention", _by_position(rows["attention_by_position"], train_length)),
    ]
    if any(row["added"] for row in rows["attention_by_distance"]):
        made.append(("encoding", _added(rows["attention_by_distance"], train_length)))
    if any(row["frequency"] for row in rows.get("frequencies", [])):
        made.append(("rotations", _frequencies(rows["frequencies"], train_length)))
    if "learned" in rows:
        made.append(("encoding", _learned(rows["learned"])))
    return [line_figure(section, chart) for section, chart in made]


def _by_distance(rows: Sequence[Row], train_length: int) -> Chart:
    """Windows of L on the left, the longest on the right."""
    both = dict.fromkeys((min(lengths(rows)), max(lengths(rows))))
    frames = [
        frame(
            f"Layer {layer}, windows of {length}",
            [row for row in only(rows, layer=layer, length=length) if row["per_key"] > FAINTEST],
            (middle, lambda row: row["per_key"]),
            f"layer {layer}",
            train_length,
        )
        for layer in layers(rows)
        for length in both
    ]
    return Chart(
        file="attention_by_distance",
        title="Attention by distance",
        x_title="Tokens back, the query's own the first",
        y_title="Mean weight of a key",
        subplots=tuple(frames),
        ratio=True,
        reading=(
            "Queries of the last half of windows of L, and those past L of longer ones; right of"
            " the dashed line lie distances that training has not shown. A head that does the same"
            f" at both lengths has the same line. Weights below {FAINTEST:g} are left out"
        ),
        csv=to_csv(rows),
    )


def _in_longest(rows: Sequence[Row], column: str, train_length: int) -> tuple[Subplot, ...]:
    """A panel for each layer, of the longest windows, all on one scale."""
    longest = max(lengths(rows))
    return tuple(
        frame(
            f"Layer {layer}",
            only(rows, layer=layer, length=longest),
            (middle, lambda row: row[column]),
            "all",
            train_length,
        )
        for layer in layers(rows)
    )


def _by_position(rows: Sequence[Row], train_length: int) -> Chart:
    return Chart(
        file="attention_by_position",
        title=f"Entropy of attention by the query's position, windows of {max(lengths(rows))}",
        x_title="Position in the window (tokens)",
        y_title="Entropy of the weights (nats)",
        subplots=_in_longest(rows, "entropy", train_length),
        ratio=False,
        reading=(
            "Attention spread evenly over n keys has an entropy of ln n. A line that jumps at the"
            " dashed one shows a head that positions past L disturb; one that goes on rising, a"
            " head whose attention thins out over more keys"
        ),
        csv=to_csv(rows),
    )


def _added(rows: Sequence[Row], train_length: int) -> Chart:
    return Chart(
        file="added_by_distance",
        title=f"What the encoding adds to a score, windows of {max(lengths(rows))}",
        x_title="Tokens back, the query's own the first",
        y_title="Mean added score",
        subplots=_in_longest(rows, "added", train_length),
        ratio=False,
        reading=(
            "Biases of slopes, buckets and tables, and what gates and relative keys add on this"
            " text, in the mean over queries past L (or, in windows of L, of the last half)"
        ),
        csv=to_csv([{key: row[key] for key in ADDED} for row in rows]),
    )


ADDED = ("length", "layer", "head", "start", "stop", "added")


def _frequencies(rows: Sequence[Row], train_length: int) -> Chart:
    """Shares of the norm on the left, of the variation on the right."""
    longest = max(lengths(rows))
    turning = [row for row in rows if row["length"] == longest and row["frequency"] > 0]
    frames = [
        frame(
            f"Layer {layer}: {name}",
            only(turning, layer=layer),
            (lambda row: 2 * pi / row["frequency"], lambda row, name=name: row[name]),
            name,
            train_length,
        )
        for layer in layers(turning)
        for name in ("norm", "variation")
    ]
    return Chart(
        file="frequencies",
        title=f"What each rotary frequency carries, windows of {longest}",
        x_title="Wavelength (tokens)",
        y_title="Share",
        subplots=tuple(frames),
        ratio=False,
        reading=(
            "Left the share of |q| |k|, the most that a frequency can give to the score; right that"
            " of what differs between the keys of a query. Right of the dashed line the wavelength"
            " is longer than the training length"
        ),
        csv=to_csv(rows),
    )


def _learned(rows: Sequence[Row]) -> Chart:
    names = list(dict.fromkeys(row["parameter"] for row in rows))
    frames = []
    for name in names[:LARGEST]:
        of_name = [row for row in rows if row["parameter"] == name]
        lines = [
            Line(
                "after training" if key == "trained" else "before",
                style(n, 2),
                tuple(Dot(i + 1.0, exact(row[key])) for i, row in enumerate(of_name)),
            )
            for n, key in enumerate(("initial", "trained"))
        ]
        frames.append(Subplot(f"{name} ({of_name[0]['quantity']})", tuple(lines), name))
    left_out = f"; the first {LARGEST} of {len(names)} parameters" if len(names) > LARGEST else ""
    return Chart(
        file="learned",
        title="What was learned",
        x_title="Number within the parameter",
        y_title="Value or norm",
        subplots=tuple(frames),
        ratio=False,
        reading="In the order of the csv, which has the index of each" + left_out,
        csv=to_csv(rows),
    )
