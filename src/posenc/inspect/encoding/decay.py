"""How scores fall with distance: for equal contents, for random ones, and as a window.

Contents have unit variance. The expectation over equal contents, E[s(x, x)], is exact where scores
are bilinear in them: samples are sqrt(d) times the rows of an orthogonal matrix and, where codes
are added to them, their negatives, so that their second moment is the identity and their mean zero.
Curves [H, N] are by distance.
"""

from functools import cache

import torch
from torch import Tensor

from posenc.inspect.encoding.hooks import drawn, scores
from posenc.inspect.encoding.measured import Measured, Property
from posenc.inspect.encoding.subject import Subject

LONGER = 4
BATCH = 16
FEW = 4
SHARE = 0.9
ROUNDING = 1e-12
AT = (0, 1, 16)
EQUAL = [f"equal at {n}" for n in AT] + ["equal at L", "equal at 4L"]
RANDOM = ["random at L", "random at 4L"]
WINDOWS = ["narrowest window", "widest window"]


def decay(subject: Subject) -> list[Measured]:
    """Expected scores of equal and of random contents, and the effective windows of heads."""
    length = reach(subject)
    equal, random = curve(subject, length, equal=True), curve(subject, length, equal=False)
    places = [*AT, subject.length - 1, length - 1]
    fallen = [equal[:, at].mean().item() for at in places]
    said = "expected score of a token for one of equal contents"
    found = [
        Measured(name, value, f"{said}, {at} tokens back, mean of heads")
        for name, value, at in zip(EQUAL, fallen, places, strict=True)
    ]
    for name, at in zip(RANDOM, places[-2:], strict=True):
        value = random[:, at].mean().item()
        found.append(Measured(name, value, f"the same of random contents, {at} tokens back"))
    windows = effective_windows(random, subject.encoding.at_layer(0).window())
    said = (
        f"nearest tokens that get {SHARE:.0%} of the weight of {length}, where contents say nothing"
    )
    ends = (min(windows), max(windows))
    return found + [Measured(n, float(w), said) for n, w in zip(WINDOWS, ends, strict=True)]


def reach(subject: Subject) -> int:
    """How many tokens are looked at: 4 L, or what the encoding can."""
    return min(LONGER * subject.length, subject.limit or LONGER * subject.length)


@cache
@torch.no_grad()
def curve(subject: Subject, length: int, *, equal: bool) -> Tensor:
    """The expected score [H, N] of the last of `length` tokens at each distance.

    Equal: all tokens of a sequence are alike. Random: the query is independent of the keys.
    """
    host, pos = subject.encoding.geometry, subject.positions(length)
    said = samples(host.head_width).repeat(1, host.heads)  # [S, D]
    said = torch.cat([said, -said]) if subject.encoding.overrides("embed") else said
    if not equal:
        said = torch.cat([said[:FEW], -said[:FEW]])
    total = torch.zeros(host.heads, length, dtype=torch.float64)
    for some in said.split(BATCH):
        x = some[:, None].expand(-1, length, -1)
        k = x.unflatten(-1, (host.heads, host.head_width)).transpose(1, 2)
        asked = [k] if equal else [sign * drawn(7, 1, *k.shape[1:]) for sign in (1, -1)]
        for q in asked:
            total += scores(subject.encoding, x, q.expand_as(k), k, pos).sum(0) / len(asked)
    return (total / len(said)).flip(-1)


def samples(dimension: int) -> Tensor:
    """Contents [dimension, dimension] whose second moment is exactly the identity."""
    return torch.linalg.qr(drawn(6, dimension, dimension)).Q * dimension**0.5


def effective_windows(biases: Tensor, window: int | None) -> list[int]:
    """For each head the nearest keys that get SHARE of the softmax of its biases [H, N]."""
    seen = biases[:, :window]
    least = SHARE - ROUNDING
    return [int((row.softmax(-1).cumsum(-1) < least).sum()) + 1 for row in seen]


PROPERTIES = (Property("decay", [*EQUAL, *RANDOM, *WINDOWS], decay),)
