"""Maps: values over a plane as colours, drawn for paper and plotted on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc.report.canvas import canvas
from posenc.report.formats import csv_text
from posenc.report.picture import Picture
from posenc.report.plot import panels, place_of

COLOURS = ("RdBu_r", "RdBu_r")  # in matplotlib's words and in plotly's
DIGITS = 3


@dataclass(frozen=True)
class Frame:
    """Values [rows, columns] with the numbers of rows and of columns; 0 is white."""

    heading: str
    values: np.ndarray
    rows: Sequence[float]
    columns: Sequence[float]

    @property
    def largest(self) -> float:
        return float(np.abs(self.values).max()) or 1.0


@dataclass(frozen=True)
class Map:
    """Frames side by side under one title, each with its own scale of colours."""

    section: str
    file: str
    title: str
    reading: str
    row_name: str
    column_name: str
    value_name: str
    frames: Sequence[Frame]

    def picture(self) -> Picture:
        """The figure, with every value in its csv."""
        return Picture(
            self.section,
            self.file,
            self.title,
            self.reading,
            self._csv(),
            self._draw,
            self._plot,
        )

    def _csv(self) -> str:
        lines: list[list[object]] = [["panel", self.row_name, self.column_name, self.value_name]]
        for frame in self.frames:
            for i, row in enumerate(frame.rows):
                for j, column in enumerate(frame.columns):
                    lines.append([frame.heading, row, column, f"{frame.values[i, j]:.6g}"])
        return csv_text(lines)

    def _draw(self) -> Figure:
        figure, grid = canvas(self.title, self.value_name, len(self.frames), (5.2, 3.6))
        for axes, frame in zip(grid, self.frames, strict=True):
            self._panel(figure, axes, frame)
        return figure

    def _panel(self, figure: Figure, axes: Axes, frame: Frame) -> None:
        scale = {"vmin": -frame.largest, "vmax": frame.largest, "cmap": COLOURS[0]}
        ends = (*_ends(frame.columns), *_ends(frame.rows)[::-1])
        image = axes.imshow(
            frame.values, aspect="auto", extent=ends, interpolation="nearest", **scale
        )
        axes.set_title(frame.heading, loc="left", fontsize=10)
        axes.set_xlabel(self.column_name)
        axes.set_ylabel(self.row_name)
        axes.tick_params(labelsize=8.5)
        figure.colorbar(image, ax=axes, pad=0.02).ax.tick_params(labelsize=8)

    def _plot(self) -> go.Figure:
        figure = panels([frame.heading for frame in self.frames])
        for i, frame in enumerate(self.frames):
            place = place_of(i, len(self.frames))
            figure.add_trace(self._trace(frame), **place)
            figure.update_xaxes(title=escape(self.column_name), **place)
            figure.update_yaxes(title=escape(self.row_name), autorange="reversed", **place)
        return figure

    def _trace(self, frame: Frame) -> go.Heatmap:
        told = f"{self.row_name} %{{y}}<br>{self.column_name} %{{x}}<br>{self.value_name} %{{z}}"
        return go.Heatmap(
            x=list(frame.columns),
            y=list(frame.rows),
            z=np.round(frame.values, DIGITS).tolist(),
            colorscale=COLOURS[1],
            zmin=-frame.largest,
            zmax=frame.largest,
            showscale=False,
            hovertemplate=f"{told}<extra></extra>",
        )


def _ends(numbers: Sequence[float]) -> tuple[float, float]:
    """The outer edges of cells that are centred on evenly spaced numbers."""
    half = (numbers[-1] - numbers[0]) / max(1, len(numbers) - 1) / 2 or 0.5
    return numbers[0] - half, numbers[-1] + half
