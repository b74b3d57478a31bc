"""What drawn figures have in common: a title, panels side by side, marks, and a line below."""

from collections.abc import Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from posenc.report.charts import Mark

COLUMNS = 2
GREY = "#555555"
LINE = 10  # points from one line of text to the next
CHARACTER = 0.066  # inches of a letter of the subtitle


def canvas(
    title: str, subtitle: str, count: int, panel: tuple[float, float]
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of so many inches (width, height)."""
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    size = (columns * panel[0], rows * panel[1] + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(wspace=0.05, hspace=0.06)  # pyrefly: ignore
    figure.suptitle(title, x=0.012, ha="left", fontsize=12.5, fontweight="bold")
    below = "\n".join(wrap(subtitle, int(size[0] / CHARACTER)))
    figure.supxlabel(below, x=0.012, ha="left", fontsize=8.5, color=GREY)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def mark_lines(axes: Axes, marks: Sequence[Mark], colour: str, *, above: bool = False) -> None:
    """Vertical lines below what is drawn or above it, each with its text at its upper end."""
    for mark in marks:
        dashes = (1, 2) if mark.dotted else (4, 3)
        axes.axvline(
            mark.at, color=colour, linewidth=1.1, linestyle=(0, dashes), zorder=3 if above else 1
        )
        axes.annotate(
            mark.text,
            (mark.at, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(4, -3 - LINE * mark.drop),
            textcoords="offset points",
            va="top",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            fontsize=8,
            color=colour,
        )
