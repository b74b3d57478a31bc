"""Whether scores depend on m - n alone, and what the encoding makes of several axes.

Contents are random queries and keys of unit variance; scores [1, H, T] are those of the last token.
"""

import torch
from torch import Tensor

from posenc.config.errors import one_line
from posenc.inspect.encoding.hooks import code, drawn, scores
from posenc.inspect.encoding.measured import Measured, Property
from posenc.inspect.encoding.subject import Subject

TOKENS = 64
STEP = 1000
SIDE = 6
SHIFT, PRODUCTS, AXES = "scores shifted", "codes shifted", "axes"


def contents(subject: Subject, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """x [1, T, D] and q, k [1, H, T, d]."""
    host = subject.encoding.geometry
    shape = (1, host.heads, tokens, host.head_width)
    return drawn(3, 1, tokens, host.width), drawn(4, *shape), drawn(5, *shape)


def shift(subject: Subject) -> list[Measured]:
    """How much scores change when every position moves by as much; products of codes too."""
    if not subject.along_sequence:
        said = "coordinates of nodes, which have no order"
        return [Measured(SHIFT, None, said), Measured(PRODUCTS, None, said)]
    tokens = min(TOKENS, (subject.limit or TOKENS) // 2)
    pos = subject.positions(tokens)
    room = STEP if subject.limit is None else min(STEP, subject.limit - 1 - int(pos.max()))
    given = contents(subject, tokens)
    here, there = (scores(subject.encoding, *given, p) for p in (pos, pos + room))
    said = f"largest change of a score, all positions {room} further on; scores have variance 1"
    return [
        Measured(SHIFT, (here - there).abs().max().item(), said),
        _products(subject, pos, room),
    ]


def _products(subject: Subject, pos: Tensor, step: int) -> Measured:
    if not subject.encoding.overrides("embed"):
        return Measured(PRODUCTS, None, "nothing is added to tokens")
    here, there = (code(subject.encoding, p) for p in (pos, pos + step))
    assert here is not None and there is not None
    change = (here @ here.mT - there @ there.mT).abs().max() / here.square().sum(-1).mean()
    said = f"largest change of <p_m, p_n>, both {step} further on, of the mean |p|^2"
    return Measured(PRODUCTS, change.item(), said)


def axes(subject: Subject) -> list[Measured]:
    """Whether tokens on a square may have two coordinates each, and whether these matter."""
    rows = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE))[None].double()
    given = contents(subject, SIDE**2)
    try:
        square = scores(subject.encoding, *given, rows)
        moved = scores(subject.encoding, *given, rows + 7.0)
        other = scores(subject.encoding, *given, rows * torch.tensor([1.0, 3.0]))
    except ValueError as refusal:
        return [Measured(AXES, 1.0, f"two are refused: {one_line(refusal)}")]
    if (square - other).abs().max() == 0:
        return [Measured(AXES, 1.0, "two are taken, and change nothing")]
    off = (square - moved).abs().max().item()
    return [Measured(AXES, 2.0, f"tokens on a square; all moved along both, scores by {off:.1e}")]


PROPERTIES = (
    Property("scores", [SHIFT, PRODUCTS], shift),
    Property("scores", [AXES], axes),
)
