"""Heat maps as they are drawn for png and svg."""

from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from posenc.report.canvas import canvas, mark_lines
from posenc.report.charts import Mark
from posenc.report.kinds.heat import HeatFrame, HeatMap
from posenc.report.ticks import x_ticks

COLOURS = "cividis_r"  # made to look alike with and without red-green blindness
ROW = 0.34  # inches


def draw_heat(heat: HeatMap) -> Figure:
    """A panel for each frame, with one bar for the scale of all."""
    tallest = max(len(frame.labels) for frame in heat.frames)
    longest = max(len(label) for frame in heat.frames for label in frame.labels)
    size = (4.9 + 0.07 * longest, 1.1 + ROW * tallest)
    figure, grid = canvas(heat.title, heat.subtitle, len(heat.frames), size)
    meshes = [
        _panel(axes, frame, heat.highest) for axes, frame in zip(grid, heat.frames, strict=True)
    ]
    bar = figure.colorbar(meshes[0], ax=grid, pad=0.02)
    bar.set_label("nats per token above the best", fontsize=8.5)
    bar.ax.tick_params(labelsize=8.5)
    return figure


def _panel(axes: Axes, frame: HeatFrame, highest: float) -> QuadMesh:
    rows = [i - 0.5 for i in range(len(frame.labels) + 1)]
    scale = {"cmap": COLOURS, "vmin": 0, "vmax": highest or 1}
    mesh = axes.pcolormesh(frame.edges, rows, frame.above, shading="flat", **scale)
    axes.set_xscale("log")
    axes.set_xlim(frame.edges[0], frame.edges[-1])
    at = x_ticks(frame.edges[0], frame.edges[-1], frame.train_length)
    axes.set_xticks(at, labels=[str(n) for n in at])
    axes.minorticks_off()
    axes.set_yticks(range(len(frame.labels)), labels=frame.labels)
    axes.set_ylim(len(frame.labels) - 0.5, -0.5)
    axes.tick_params(labelsize=8.5)
    axes.set_xlabel("Position in the window (tokens)")
    axes.set_title(frame.heading, loc="left", fontsize=10)
    mark_lines(axes, (Mark(frame.train_length, ""),), "black", above=True)
    return mesh
