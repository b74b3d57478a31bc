"""Whether p(m + k) is a fixed linear map of p(m), and how much neighbours differ.

Codes p [T, C]. The share that a map M leaves is |P_k - P M| / |P_k - P| over all positions, P their
codes and P_k those k further on: 1 is as good as no map, 0 is a fixed linear map.
"""

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.inspect.encoding.hooks import code
from posenc.inspect.encoding.measured import Measured, Property, inapplicable
from posenc.inspect.encoding.subject import Subject

STEPS = (1, 16, 64)
POSITIONS = 2048
WIDTHS = (64, 256, 1024)
STILL = 0.01
NO_CODE = "positions have no code of their own"
NAMES = [f"map by {step}" for step in STEPS]
NEIGHBOURS = [f"still at {width}" for width in WIDTHS]


def maps(subject: Subject) -> list[Measured]:
    """The best fixed linear map from each position's code to that of a later one."""
    length = min(POSITIONS, subject.limit or POSITIONS)
    codes = code(subject.encoding, subject.positions(length))
    if codes is None:
        return inapplicable(NAMES, NO_CODE)
    return [_by_step(codes, name, step) for name, step in zip(NAMES, STEPS, strict=True)]


def _by_step(codes: Tensor, name: str, step: int) -> Measured:
    length, channels = codes.shape
    if length - step <= channels:
        said = f"{length} positions are too few: some map of {channels} channels fits them all"
        return Measured(name, None, said)
    said = f"what the best fixed linear map leaves of the change, over {length} positions"
    return Measured(name, unexplained(codes, step), said)


def unexplained(codes: Tensor, step: int) -> float:
    """|P_k - P M| / |P_k - P| for the best M; 0 where codes do not change at all."""
    before, after = codes[:-step], codes[step:]
    change = (after - before).norm().item()
    if change == 0:
        return 0.0
    best = torch.linalg.lstsq(before, after, driver="gelsd").solution
    return (after - before @ best).norm().item() / change


def neighbours(subject: Subject) -> list[Measured]:
    """Which share of the channels hardly changes from one position to the next, by width."""
    if code(subject.encoding, subject.positions(2)) is None:
        return inapplicable(NEIGHBOURS, NO_CODE)
    return [_at_width(subject, *pair) for pair in zip(NEIGHBOURS, WIDTHS, strict=True)]


def _at_width(subject: Subject, name: str, width: int) -> Measured:
    per_head = not subject.encoding.overrides("embed")
    model = width * subject.config.model.heads if per_head else width
    encoding = subject.build({"model.width": model})
    share, size = still(encoding, subject.positions(subject.length))
    of = "a head" if per_head else "the model"
    said = (
        f"share of channels that move by under {STILL:.0%} of the code's size; all, by {size:.2g}"
    )
    return Measured(name, share, f"{said}; {of} of width {width}")


def still(encoding: Encoding, pos: Tensor) -> tuple[float, float]:
    """The share of still channels, and how far a channel moves (root mean square, of 1)."""
    codes = code(encoding, pos)
    assert codes is not None
    size = codes.square().mean().sqrt()
    moves = (codes[1:] - codes[:-1]).square().mean(dim=0).sqrt() / size
    return (moves < STILL).double().mean().item(), moves.square().mean().sqrt().item()


PROPERTIES = (
    Property("codes", NAMES, maps),
    Property("codes", NEIGHBOURS, neighbours),
)
