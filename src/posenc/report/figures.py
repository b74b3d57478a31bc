"""The figures as they are drawn for png and svg."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from posenc.report.charts import Chart, log_ticks, tick_texts, x_ticks
from posenc.report.curves import Panel, Series
from posenc.report.style import Style

COLUMNS = 2
LINE_HEIGHT = 0.056  # of a label, as a share of the height of a panel
LEADER = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)}
GREY = "#555555"


def draw(chart: Chart, styles: dict[str, Style]) -> Figure:
    """A panel for each training length, its lines labelled where they end."""
    columns = min(COLUMNS, len(chart.panels))
    rows = -(-len(chart.panels) // columns)
    longest = max(len(series.label) for panel in chart.panels for series in panel.series)
    size = (columns * (4.6 + 0.075 * longest), rows * 3.9 + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(wspace=0.05, hspace=0.06)  # pyrefly: ignore
    figure.suptitle(chart.title, x=0.012, ha="left", fontsize=12.5, fontweight="bold")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(chart.panels) :]:
        axes.remove()
    for axes, panel in zip(grid.flat, chart.panels, strict=False):
        _panel(axes, chart, panel, styles)
    figure.supxlabel(chart.subtitle, x=0.012, ha="left", fontsize=8.5, color=GREY)
    return figure


def _panel(axes: Axes, chart: Chart, panel: Panel, styles: dict[str, Style]) -> None:
    _axes(axes, chart, panel)
    for series in panel.series:
        _line(axes, chart, series, styles[series.label])
    _end_labels(axes, chart, panel.series, styles)


def _axes(axes: Axes, chart: Chart, panel: Panel) -> None:
    x_range, y_range = chart.x_range(panel), chart.y_range(panel)
    axes.set_xscale("log", base=2)
    axes.set_xlim(*x_range)
    axes.set_xticks(at := x_ticks(*x_range, panel.train_length), labels=[str(n) for n in at])
    if chart.log_y(panel):
        axes.set_yscale("log")
        axes.set_yticks(at := log_ticks(*y_range), labels=list(tick_texts(at)))
    axes.set_ylim(*y_range)
    axes.minorticks_off()
    axes.set_xlabel(chart.x_name)
    axes.set_ylabel(chart.y_name)
    axes.set_title(chart.heading(panel), loc="left", fontsize=10)
    axes.tick_params(labelsize=8.5)
    axes.grid(True, color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.axvline(panel.train_length, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        "training length",
        (panel.train_length, 1),
        xycoords=axes.get_xaxis_transform(),
        xytext=(4, -3),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color=GREY,
    )


def _line(axes: Axes, chart: Chart, series: Series, style: Style) -> None:
    at = [point.at for point in series.points]
    mean, low, high = zip(*map(chart.values, series.points), strict=True)
    every = max(1, len(at) // 10)
    axes.plot(
        at,
        mean,
        color=style.colour,
        linestyle=(0, style.dashes) if style.dashes else "solid",
        linewidth=1.7,
        marker=style.marker,
        markersize=5,
        markevery=every,
        markeredgecolor="white",
        markeredgewidth=0.5,
    )
    if any(len(point.seeds) > 1 for point in series.points):
        axes.fill_between(at, low, high, color=style.colour, alpha=0.16, linewidth=0)


def _end_labels(
    axes: Axes, chart: Chart, series: Sequence[Series], styles: dict[str, Style]
) -> None:
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    ends = [(s.points[-1].at, chart.values(s.points[-1])[0], s.label) for s in series]
    ends.sort(key=lambda end: end[1])
    heights = spaced([to_axes(end[:2])[1] for end in ends], LINE_HEIGHT)
    for (x, y, label), height in zip(ends, heights, strict=True):
        colour = styles[label].colour
        axes.annotate(
            label,
            (x, y),
            xytext=(1.035, height),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            color=colour,
            annotation_clip=False,
            arrowprops=LEADER | {"color": colour},
        )


def spaced(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved apart to at least `gap`, downwards where they would pass 1."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = max(1.0, gap * (len(placed) - 1))
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed
