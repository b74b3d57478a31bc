"""Properties of the codes of positions: whether they differ, where they repeat, how large they are.

A code [T, C] is what is added to a token, or a query of ones, turned; an encoding that has neither
is measured by the biases of its distances [N, H], and one without those by zeros.
"""

import torch
from torch import Tensor

from posenc.inspect.encoding.hooks import at_distances, code, line
from posenc.inspect.encoding.measured import Measured, Property
from posenc.inspect.encoding.subject import Subject

REACH = 32_768
FAR = 100_000
LONGER = 4
SAME = 1e-9
REPEATS, LENGTH, SEED = "first repeat", "other length", "other seed"
LARGEST, FARTHEST, SIZE = "largest to L", "largest at 100,000", "size"


def repeats(subject: Subject) -> list[Measured]:
    """Where a code comes back, looked for among the first positions."""
    codes, what = _codes(subject, REACH)
    found = first_repeat(codes)
    if found is None:
        return [Measured(REPEATS, f"none to {len(codes) - 1}", f"{len(codes)} {what} all differ")]
    earlier, later = found
    return [Measured(REPEATS, later, f"{what[:-1]} {later} has the code of {earlier}")]


def first_repeat(codes: Tensor) -> tuple[int, int] | None:
    """The first position of codes [T, C] that equals an earlier one, after that one."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(codes.shape[1], generator=generator, dtype=torch.float64)
    order = (codes @ direction).sort(stable=True)
    near = (order.values.diff() <= SAME * direction.norm()).nonzero()[:, 0]
    a, b = order.indices[near], order.indices[near + 1]
    equal = ((codes[a] - codes[b]).abs() <= SAME).all(dim=-1)
    pairs = torch.stack([a, b], dim=-1)[equal].sort(dim=-1).values
    if not len(pairs):
        return None
    earlier, later = pairs[pairs[:, 1].argmin()].tolist()
    return earlier, later


def same_anywhere(subject: Subject) -> list[Measured]:
    """Whether a position has the same code in a longer sequence, and in another model."""
    longer = min(LONGER * subject.length, subject.limit or LONGER * subject.length)
    short = min(subject.length, longer // 2)
    here, _ = _codes(subject, short)
    another = subject.other_seed()
    another.encoding.train()  # where positions are drawn anew
    there, other = _codes(subject, longer, short)[0], _codes(another, short)[0]
    off, drawn = ((here - of[: len(here)]).abs().max().item() for of in (there, other))
    return [
        Measured(LENGTH, off, f"largest change between sequences of {short} and {longer} tokens"),
        Measured(SEED, drawn, "largest change with another seed, in training"),
    ]


def sizes(subject: Subject) -> list[Measured]:
    """How large values are; a unit-variance token embedding has the size 1."""
    codes, what = _codes(subject, subject.length)
    size = codes.square().mean().sqrt().item()
    return [
        Measured(LARGEST, codes.abs().max().item(), f"of {len(codes)} {what}"),
        _farthest(subject, what),
        Measured(SIZE, size, "root mean square; of a unit-variance token embedding or score, 1"),
    ]


def _farthest(subject: Subject, what: str) -> Measured:
    if subject.limit is not None and subject.limit <= FAR:
        return Measured(FARTHEST, None, f"it ends after {subject.limit} positions")
    if not subject.along_sequence:
        return Measured(FARTHEST, None, "coordinates say what a token is, not how far it is")
    pos = torch.arange(FAR - 127, FAR + 1)
    found = code(subject.encoding, pos)
    if found is None:
        found = at_distances(subject.encoding, pos, FAR)
    if found is None and subject.encoding.at_layer(0).overrides("content_bias"):
        return Measured(
            FARTHEST, None, "it comes from what the tokens say, not from positions alone"
        )
    if found is None:
        return Measured(FARTHEST, 0.0, "nothing is added anywhere")
    return Measured(FARTHEST, found.abs().max().item(), f"of {what} {pos[0]} to {FAR}")


def _codes(subject: Subject, length: int, query: int | None = None) -> tuple[Tensor, str]:
    """Codes of so many positions or, without any, biases [N, H] of as many distances.

    `query` is how many tokens the looking back token and those before it are; None: all.
    """
    tokens = min(length, subject.limit or length)
    found = code(subject.encoding, subject.positions(tokens))
    if found is not None:
        return found, "positions"
    tokens = min(tokens, LONGER * subject.length)
    added = line(subject.encoding, subject.positions(tokens), (query or tokens) - 1)
    if added is None:
        return torch.zeros(tokens, 1, dtype=torch.float64), "positions"
    return added.mT, "distances"


PROPERTIES = (
    Property("codes", [REPEATS], repeats),
    Property("codes", [LENGTH, SEED], same_anywhere),
    Property("codes", [LARGEST, FARTHEST, SIZE], sizes),
)
