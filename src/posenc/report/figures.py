"""The figures of lines as they are drawn for png and svg."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc.report.canvas import GREY, canvas, mark_lines
from posenc.report.charts import Chart, Frame, Line
from posenc.report.ticks import log_ticks, tick_texts

LINE_HEIGHT = 0.056  # of a label, as a share of the height of a panel
LEADER = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)}
PUBLISHED_DASHES = (3, 2)


def draw(chart: Chart) -> Figure:
    """A panel for each frame, its lines labelled where they end."""
    longest = max(len(line.name) for frame in chart.frames for line in frame.lines)
    width = 4.6 + 0.075 * longest
    figure, grid = canvas(chart.title, chart.subtitle, len(chart.frames), (width, 3.9))
    for axes, frame in zip(grid, chart.frames, strict=True):
        _axes(axes, chart, frame)
        for line in frame.lines:
            _line(axes, line)
        _end_labels(axes, frame.lines)
    return figure


def _axes(axes: Axes, chart: Chart, frame: Frame) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*chart.x_range(frame))
    at, texts = chart.x_ticks(frame)
    axes.set_xticks(at, labels=texts)
    if chart.log_y(frame):
        axes.set_yscale("log")
        axes.set_yticks(at := log_ticks(*chart.y_range(frame)), labels=list(tick_texts(at)))
    axes.set_ylim(*chart.y_range(frame))
    axes.minorticks_off()
    axes.set_xlabel(chart.x_name)
    axes.set_ylabel(chart.y_name)
    axes.set_title(frame.heading, loc="left", fontsize=10)
    axes.tick_params(labelsize=8.5)
    axes.grid(True, color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    mark_lines(axes, frame.marks, GREY)


def _line(axes: Axes, line: Line) -> None:
    at, style = [dot.at for dot in line.dots], line.style
    dashes = PUBLISHED_DASHES if line.published else style.dashes
    axes.plot(
        at,
        [dot.band.mean for dot in line.dots],
        color=style.colour,
        linestyle=(0, dashes) if dashes else "solid",
        linewidth=1.1 if line.published else 1.7,
        marker=style.marker,
        markersize=5,
        markevery=max(1, len(at) // 10),
        markerfacecolor="white" if line.published else style.colour,
        markeredgecolor=style.colour if line.published else "white",
        markeredgewidth=0.9 if line.published else 0.5,
    )
    if len(line.dots) == 1:
        _cross(axes, line)
    elif any(dot.band.seeds > 1 for dot in line.dots) and not line.published:
        low, high = zip(*((dot.band.low, dot.band.high) for dot in line.dots), strict=True)
        axes.fill_between(at, low, high, color=style.colour, alpha=0.16, linewidth=0)


def _cross(axes: Axes, line: Line) -> None:
    """The bands of a line that is a single dot."""
    (dot,) = line.dots
    look = {"color": line.style.colour, "linewidth": 1.2, "zorder": 1.5}
    axes.plot([dot.at, dot.at], [dot.band.low, dot.band.high], marker="_", **look)
    if dot.across:
        axes.plot([dot.across.low, dot.across.high], [dot.band.mean] * 2, marker="|", **look)


def _end_labels(axes: Axes, lines: Sequence[Line]) -> None:
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    ends = [(line.dots[-1].at, line.dots[-1].band.mean, line) for line in lines]
    ends.sort(key=lambda end: end[1])
    heights = spaced([to_axes(end[:2])[1] for end in ends], LINE_HEIGHT)
    for (x, y, line), height in zip(ends, heights, strict=True):
        colour = line.style.colour
        axes.annotate(
            line.name,
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
