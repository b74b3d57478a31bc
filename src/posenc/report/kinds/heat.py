"""Loss by position as a heat map: encodings by bins of positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np

from posenc.report.bands import band_text
from posenc.report.curves import Panel
from posenc.report.formats import PANEL_KEY, csv_text, panel_key
from posenc.report.kinds.frames import heading, shared_text

READING = (
    "The loss of each encoding minus that of the best one at the same positions: the lightest"
    " encoding of a column is the best there, and darker is worse. Right of the dashed line stand"
    " positions that the model never saw in training."
)


@dataclass(frozen=True)
class HeatFrame:
    """`above` [encodings, bins] in nats per token, NaN where nothing was measured; `loss` likewise.

    `edges` [bins + 1] are positions in tokens, `at` [bins] the positions that bins stand for.
    """

    heading: str
    labels: tuple[str, ...]
    at: tuple[float, ...]
    edges: tuple[float, ...]
    loss: np.ndarray
    above: np.ndarray
    train_length: int


@dataclass(frozen=True)
class HeatMap:
    """Frames side by side under one title, with one scale of colours for all."""

    file: str
    title: str
    subtitle: str
    frames: tuple[HeatFrame, ...]
    reading: str
    csv: str

    @property
    def highest(self) -> float:
        return max(float(np.nanmax(frame.above)) for frame in self.frames)


def heat_map(panels: Sequence[Panel]) -> HeatMap | None:
    """A frame for each panel of two series or more; None where there is none."""
    shown = [panel for panel in panels if len(panel.series) > 1]
    if not shown:
        return None
    frames = tuple(_frame(panel, heading(panel, shown)) for panel in shown)
    bands = band_text(p.band for panel in shown for s in panel.series for p in s.points)
    return HeatMap(
        file="loss_by_position_heat",
        title="Loss by position, above the best encoding",
        subtitle=". ".join(filter(None, (shared_text(shown), bands.partition(",")[0]))),
        frames=frames,
        reading=READING,
        csv=_csv(shown, frames),
    )


def _frame(panel: Panel, title: str) -> HeatFrame:
    places = panel.places
    rows = [[p.mean if (p := s.at(at)) else np.nan for at in places] for s in panel.series]
    loss = np.array(rows)
    labels = tuple(series.label for series in panel.series)
    above = loss - np.nanmin(loss, axis=0)
    return HeatFrame(title, labels, tuple(places), _edges(places), loss, above, panel.train_length)


def _edges(places: Sequence[float]) -> tuple[float, ...]:
    """Between neighbours halfway on a log axis, and as far again at either end."""
    if len(places) == 1:
        return (places[0] / 2, places[0] * 2)
    inner = [sqrt(a * b) for a, b in pairwise(places)]
    return (places[0] ** 2 / inner[0], *inner, places[-1] ** 2 / inner[-1])


def _csv(panels: Sequence[Panel], frames: Sequence[HeatFrame]) -> str:
    lines: list[Sequence[object]] = [(*PANEL_KEY, "encoding", "position", "loss", "above_best")]
    for panel, frame in zip(panels, frames, strict=True):
        for i, label in enumerate(frame.labels):
            for at, *cell in zip(frame.at, frame.loss[i], frame.above[i], strict=True):
                if not np.isnan(cell[0]):
                    numbers = (f"{at:.6g}", *(f"{x:.6f}" for x in cell))
                    lines.append([*panel_key(panel), label, *numbers])
    return csv_text(lines)
