"""A matplotlib figure as the bytes of a file, the same on every machine."""

import io
from collections.abc import Callable

import matplotlib
from matplotlib.figure import Figure

DPI = 160
FIXED = {"svg.hashsalt": "posenc", "font.family": "DejaVu Sans", "path.simplify": True}


def png(draw: Callable[[], Figure]) -> bytes:
    return _save(draw, "png", {"Software": None})


def svg(draw: Callable[[], Figure], title: str) -> bytes:
    return _save(draw, "svg", {"Date": None, "Title": title})


def _save(draw: Callable[[], Figure], kind: str, about: dict[str, str | None]) -> bytes:
    file = io.BytesIO()
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **FIXED}):
        draw().savefig(file, format=kind, dpi=DPI, metadata=about)
    return file.getvalue()
