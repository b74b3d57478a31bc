"""How a series looks wherever it is drawn, told apart without colour too."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import colormaps
from matplotlib.colors import to_hex

from posenc.report.curves import Panel

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = (  # in matplotlib's words and in plotly's
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("X", "x"),
    ("*", "star"),
)
DASHES = ((), (6, 2), (2, 2), (6, 2, 2, 2))
LADDER = 4  # from so many on, series that differ in a knob only share a scale of colours
LADDER_SHADES = (0.0, 0.82)  # of viridis, whose end is too light for paper


@dataclass(frozen=True)
class Style:
    """A colour, a marker in both libraries' words, and a dash pattern in points."""

    colour: str
    marker: str
    symbol: str
    dashes: tuple[int, ...]

    @property
    def plotly_dash(self) -> str:
        return ",".join(f"{length}px" for length in self.dashes) or "solid"

    def translucent(self, alpha: float) -> str:
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha})"


def styles(panels: Sequence[Panel]) -> dict[str, Style]:
    """A style for each label, the same in every panel and figure."""
    families = {series.label: series.family for panel in panels for series in panel.series}
    sizes = Counter(families.values())
    flat = [label for label, family in families.items() if sizes[family] < LADDER]
    colours = {label: OKABE_ITO[i % len(OKABE_ITO)] for i, label in enumerate(flat)}
    for family, size in sizes.items():
        if size >= LADDER:
            members = [label for label in families if families[label] == family]
            colours.update(zip(members, shades(size), strict=True))
    return {
        label: Style(colours[label], *MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i, label in enumerate(families)
    }


def shades(count: int) -> list[str]:
    """Colours of an ordered scale, told apart in print and by colour-blind readers."""
    first, last = LADDER_SHADES
    steps = [first + (last - first) * i / max(1, count - 1) for i in range(count)]
    return [to_hex(colormaps["viridis"](step)) for step in steps]
