"""How scores survive low precision, against float64, near a query at a far position.

Two questions for each format. Values: positions are exact, and what the encoding gives (codes added
to tokens, turned queries and keys, biases) is held in the format. Positions: they themselves are,
as where angles are computed in it, and all else is exact. float8 is e4m3; it and int8 have one
scale for a tensor, its largest value becoming the largest of the format.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from posenc.inspect.encoding.hooks import operands
from posenc.inspect.encoding.measured import Measured, Property, inapplicable
from posenc.inspect.encoding.relative import contents
from posenc.inspect.encoding.subject import Subject
from posenc.inspect.findings import Table

PLACES = (100, 1_000, 10_000, 100_000)
NEAR = 64
FLOAT8 = 448.0
Rounding = Callable[[Tensor], Tensor]


def _scaled(largest: float, rounded: Rounding) -> Rounding:
    def apply(x: Tensor) -> Tensor:
        scale = largest / x.abs().max().clamp(min=1e-300)
        return rounded(x * scale) / scale

    return apply


FORMATS: dict[str, Rounding] = {
    "bfloat16": lambda x: x.bfloat16().double(),
    "float16": lambda x: x.half().double(),
    "float8": _scaled(FLOAT8, lambda x: x.to(torch.float8_e4m3fn).double()),
    "int8": _scaled(127.0, Tensor.round),
}
NAMES = [*(f"{name} values" for name in FORMATS), *(f"{name} positions" for name in FORMATS)]


def precision(subject: Subject) -> list[Measured]:
    """The largest error of a score at the farthest place that can be."""
    if not subject.along_sequence:
        return inapplicable(NAMES, "coordinates say what a token is, not how far it is")
    place = PLACES[-1] if subject.limit is None else min(PLACES[-1], subject.limit - 1)
    of_values, of_positions = errors(subject, place)
    said = f"largest error of a score at position {place}, variance 1"
    found = [*of_values.values(), *of_positions.values()]
    return [Measured(name, error, said) for name, error in zip(NAMES, found, strict=True)]


def by_place(subjects: Sequence[Subject]) -> Table:
    """The errors at all places that an encoding reaches, for the file."""
    rows = [
        [subject.label, float(place), name, of_values[name], of_positions[name]]
        for subject in subjects
        if subject.along_sequence
        for place in PLACES
        if subject.limit is None or place < subject.limit
        for of_values, of_positions in [errors(subject, place)]
        for name in FORMATS
    ]
    columns = ["encoding", "position", "format", "values", "positions"]
    title = "Largest errors of a score by position"
    return Table("", "low_precision_by_position", title, columns, rows, printed=False)


@torch.no_grad()
def errors(subject: Subject, place: int) -> tuple[dict[str, float], dict[str, float]]:
    """The largest error among the nearest keys by format: of values, and of positions."""
    pos = torch.cat([torch.arange(NEAR), torch.arange(place - NEAR + 1, place + 1)])
    pos = torch.arange(place + 1) if place < 2 * NEAR else pos
    given = contents(subject, len(pos))
    exact = _scores(subject, *operands(subject.encoding, *given, pos))
    values, positions = {}, {}
    for name, rounded in FORMATS.items():
        q, k, added = operands(subject.encoding, *given, pos)
        low = rounded(q), rounded(k), None if added is None else rounded(added)
        values[name] = _largest(_scores(subject, *low) - exact)
        coarse = rounded(pos.double())
        overflows = not coarse.isfinite().all()
        moved = operands(subject.encoding, *given, coarse.nan_to_num(posinf=0).long())
        off = _largest(_scores(subject, *moved) - exact)
        positions[name] = float("inf") if overflows and off > 0 else off
    return values, positions


def _scores(subject: Subject, q: Tensor, k: Tensor, added: Tensor | None) -> Tensor:
    """Scores of the last query for the nearest keys [1, H, NEAR]."""
    found = (q[:, :, -1:] @ k.mT) * subject.encoding.geometry.head_width**-0.5
    return (found if added is None else found + added)[:, :, 0, -NEAR:]


def _largest(off: Tensor) -> float:
    return off.abs().nan_to_num(nan=float("inf")).max().item()


PROPERTIES = (Property("low precision", NAMES, precision),)
