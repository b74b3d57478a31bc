"""The ratios as a picture: a row of marks for each encoding, a mark for each length."""

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from posenc.benchmark.results import Row

MARKERS = "o^sDvPX*"
SHADES = (0.0, 0.82)  # of viridis, whose end is too light for paper
TITLES = {"forward": "Forward pass", "step": "Training step"}
ROW_HEIGHT = 0.3  # inches for a mark
LOG_FROM = 2.5
DENSE = 12.0  # a range of less has ticks between the powers of two


def draw(rows: Sequence[Row], title: str, caption: str) -> Figure:
    """A panel for each pass: time over the first variant's, its range, published values hollow."""
    names = list(dict.fromkeys(_name(row, rows) for row in rows))
    lengths = sorted({row["length"] for row in rows})
    passes = [name for name in TITLES if any(row["pass"] == name for row in rows)]
    height = 1.9 + ROW_HEIGHT * len(names) * max(1.0, 0.6 * len(lengths))
    figure = Figure(figsize=(1.5 + 4.2 * len(passes), height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.012, ha="left", fontsize=12.5, fontweight="bold")
    figure.supxlabel(caption, x=0.012, ha="left", fontsize=8.5, color="#555555")
    panels = figure.subplots(1, len(passes), squeeze=False, sharey=True)[0]
    for axes, pass_ in zip(panels, passes, strict=True):
        _axes(axes, names, pass_, rows)
        for i, length in enumerate(lengths):
            at = (i - (len(lengths) - 1) / 2) * 0.7 / len(lengths)
            chosen = [r for r in rows if (r["pass"], r["length"]) == (pass_, length)]
            _marks(axes, chosen, [names.index(_name(r, rows)) + at for r in chosen], i, lengths)
    if len(lengths) > 1 or any(row["published_ratio"] for row in rows):
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", fontsize=8.5, frameon=False)
    return figure


def _axes(axes: Axes, names: Sequence[str], pass_: str, rows: Sequence[Row]) -> None:
    axes.set_yticks(range(len(names)), labels=list(names), fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.5)
    if max(row["published_ratio"] or row["ratio"] for row in rows) > LOG_FROM:
        axes.set_xscale("log", base=2)
        low, high = _span(rows)
        step = 1 if high / low < DENSE else 2
        ticks = [2 ** (i / 2) if i % 2 == 0 else 1.5 * 2 ** (i // 2) for i in range(-8, 26, step)]
        axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        axes.set_xlim(low, high)
    axes.set_title(TITLES[pass_], loc="left", fontsize=10)
    firsts = " or ".join(dict.fromkeys(row["ratio_to"] for row in rows))
    axes.set_xlabel(f"time over that of {firsts} at the same length", fontsize=9)
    axes.tick_params(labelsize=8.5)
    axes.axvline(1, color="#555555", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for line in range(len(names) - 1):
        axes.axhline(line + 0.5, color="#e4e4e4", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)


def _marks(
    axes: Axes, rows: Sequence[Row], heights: Sequence[float], index: int, lengths: Sequence[int]
) -> None:
    shade = SHADES[1] * index / max(1, len(lengths) - 1)
    colour, marker = colormaps["viridis"](shade), MARKERS[index % len(MARKERS)]
    middle = [row["ratio"] for row in rows]
    reach = [
        [row["ratio"] - row["ratio_lowest"] for row in rows],
        [row["ratio_highest"] - row["ratio"] for row in rows],
    ]
    style = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 5}
    label = f"L = {lengths[index]}"
    axes.errorbar(middle, heights, xerr=reach, elinewidth=1.2, label=label, **style)
    told = [
        (row["published_ratio"], height)
        for row, height in zip(rows, heights, strict=True)
        if row["published_ratio"] is not None
    ]
    if told:
        hollow = {**style, "markerfacecolor": "white", "markersize": 6, "zorder": 1}
        axes.plot(*zip(*told, strict=True), label=f"L = {lengths[index]}, published", **hollow)


def _span(rows: Sequence[Row]) -> tuple[float, float]:
    """From below the lowest mark to above the highest, 1 between them."""
    told = [row["published_ratio"] for row in rows if row["published_ratio"] is not None]
    low = min(1, *told, *(row["ratio_lowest"] for row in rows))
    return 0.9 * low, 1.1 * max(*told, *(row["ratio_highest"] for row in rows))


def _name(row: Row, rows: Sequence[Row]) -> str:
    """The encoding, and its kernel where an encoding is measured with several."""
    kernels = {other["kernel"] for other in rows if other["encoding"] == row["encoding"]}
    return f"{row['encoding']}, {row['kernel']}" if len(kernels) > 1 else row["encoding"]
