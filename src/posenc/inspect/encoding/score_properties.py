"""Properties of scores: whether they are relative, take two axes, and decay with distance.

Token content has unit variance. The expectation over equal content, E[s(x, x)], is exact where
scores are bilinear in content: samples are sqrt(d) times the rows of an orthogonal matrix and,
where position embeddings are added to them, their negatives, so that their second moment is the
identity and their mean zero.
"""

from functools import cache

import torch
from torch import Tensor

from posenc.config.errors import one_line
from posenc.inspect.encoding.hook_outputs import (
    last_scores,
    position_vectors,
    random_content,
    random_normal,
)
from posenc.inspect.encoding.inspected_encoding import (
    InspectedEncoding,
    PropertyGroup,
    PropertyValue,
    inapplicable,
)

SHIFTED_TOKENS, SHIFT = 64, 1000
SQUARE = 6  # tokens on a side
SCORE_SHIFT, PRODUCT_SHIFT, AXES = "score shift error", "product shift error", "axes"
LONGER = 4  # times the training length
BATCH = 16
RANDOM_SAMPLES = 4
WEIGHT = 0.9  # of an effective window
ROUNDING = 1e-12
DISTANCES = (0, 1, 16)
EQUAL = [f"equal at {n}" for n in DISTANCES] + ["equal at L", "equal at 4L"]
RANDOM = ["random at L", "random at 4L"]
WINDOWS = ["narrowest window", "widest window"]


def shift_errors(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure how much scores, and inner products of vectors, change if all positions shift."""
    if not inspected.has_1d_positions:
        return inapplicable([SCORE_SHIFT, PRODUCT_SHIFT], "coordinates of nodes have no order")
    tokens = SHIFTED_TOKENS
    tokens = min(tokens, (inspected.max_length or tokens) // 2)
    pos = inspected.positions(tokens)
    shift = (
        SHIFT
        if inspected.max_length is None
        else min(SHIFT, inspected.max_length - 1 - int(pos.max()))
    )
    content = random_content(inspected, tokens)
    scores, shifted = (last_scores(inspected.encoding, *content, p) for p in (pos, pos + shift))
    description = f"max change of a score if all positions shift by {shift}; scores have variance 1"
    error = (scores - shifted).abs().max().item()
    return [PropertyValue(SCORE_SHIFT, error, description), _product_shift(inspected, pos, shift)]


def _product_shift(inspected: InspectedEncoding, pos: Tensor, shift: int) -> PropertyValue:
    if not inspected.encoding.overrides("embed"):
        return PropertyValue(PRODUCT_SHIFT, None, "nothing is added to token embeddings")
    p, shifted = (position_vectors(inspected.encoding, at) for at in (pos, pos + shift))
    assert p is not None and shifted is not None
    change = (p @ p.mT - shifted @ shifted.mT).abs().max() / p.square().sum(-1).mean()
    description = f"max change of <p_m, p_n> relative to |p|^2 if both shift by {shift}"
    return PropertyValue(PRODUCT_SHIFT, change.item(), description)


def axes(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Test whether positions may have two coordinates, and whether these have an effect."""
    grid = torch.cartesian_prod(torch.arange(SQUARE), torch.arange(SQUARE))[None].double()
    content = random_content(inspected, SQUARE**2)
    try:
        scores, moved, stretched = (
            last_scores(inspected.encoding, *content, points)
            for points in (grid, grid + 7.0, grid * torch.tensor([1.0, 3.0]))
        )
    except ValueError as error:
        return [PropertyValue(AXES, 1.0, f"two are not supported: {one_line(error)}")]
    if (scores - stretched).abs().max() == 0:
        return [PropertyValue(AXES, 1.0, "two are accepted but have no effect")]
    change = (scores - moved).abs().max().item()
    return [
        PropertyValue(
            AXES, 2.0, f"if a grid of tokens moves along both, scores change by {change:.1e}"
        )
    ]


def decay(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure expected scores of equal and of random content, and effective windows."""
    length = reach(inspected)
    equal, random = (expected_scores(inspected, length, equal=kind) for kind in (True, False))
    distances = [*DISTANCES, inspected.train_length - 1, length - 1]
    description = "expected score of a token and an equal one {} tokens back, mean over heads"
    measurements = [
        _at(equal, name, distance, description)
        for name, distance in zip(EQUAL, distances, strict=True)
    ]
    description = "expected score of a token and an independent one {} tokens back, mean over heads"
    measurements += [
        _at(random, name, distance, description)
        for name, distance in zip(RANDOM, distances[-2:], strict=True)
    ]
    windows = effective_windows(random, inspected.encoding.at_layer(0).window())
    description = f"nearest tokens that get {WEIGHT:.0%} of the weight of {length}, without content"
    ends = zip(WINDOWS, (min(windows), max(windows)), strict=True)
    return measurements + [PropertyValue(name, float(size), description) for name, size in ends]


def _at(scores: Tensor, name: str, distance: int, description: str) -> PropertyValue:
    if distance >= scores.shape[-1]:
        return PropertyValue(name, None, f"the longest distance is {scores.shape[-1] - 1}")
    return PropertyValue(name, scores[:, distance].mean().item(), description.format(distance))


def reach(inspected: InspectedEncoding) -> int:
    """Return 4 L, or the maximum sequence length if that is less."""
    return inspected.clamp_length(LONGER * inspected.train_length)


@cache
@torch.no_grad()
def expected_scores(inspected: InspectedEncoding, length: int, *, equal: bool) -> Tensor:
    """Return the expected score [H, N] of the last of `length` tokens by distance.

    Either all tokens have equal content, or the query's is independent of the keys'.
    """
    geometry, pos = inspected.encoding.geometry, inspected.positions(length)
    content = content_samples(inspected)
    if not equal:
        content = torch.cat([content[:RANDOM_SAMPLES], -content[:RANDOM_SAMPLES]])
    total = torch.zeros(geometry.heads, length, dtype=torch.float64)
    for batch in content.split(BATCH):
        x = batch[:, None].expand(-1, length, -1)
        k = x.unflatten(-1, (geometry.heads, geometry.head_width)).transpose(1, 2)
        queries = [k] if equal else [s * random_normal(7, 1, *k.shape[1:]) for s in (1, -1)]
        for q in queries:
            scores = last_scores(inspected.encoding, x, q.expand_as(k), k, pos)
            total += scores.sum(0) / len(queries)
    return (total / len(content)).flip(-1)


def content_samples(inspected: InspectedEncoding) -> Tensor:
    """Return token content [S, D] whose second moment per head is exactly the identity."""
    geometry = inspected.encoding.geometry
    width = geometry.head_width
    samples = torch.linalg.qr(random_normal(6, width, width)).Q * width**0.5
    content = samples.repeat(1, geometry.heads)
    return torch.cat([content, -content]) if inspected.encoding.overrides("embed") else content


def effective_windows(bias: Tensor, window: int | None) -> list[int]:
    """Return for each head how many of the nearest keys get WEIGHT of the softmax of [H, N]."""
    weights = bias[:, :window].softmax(-1).cumsum(-1)
    return [int((row < WEIGHT - ROUNDING).sum()) + 1 for row in weights]


GROUPS = (
    PropertyGroup("scores", [SCORE_SHIFT, PRODUCT_SHIFT], shift_errors),
    PropertyGroup("scores", [AXES], axes),
    PropertyGroup("decay", [*EQUAL, *RANDOM, *WINDOWS], decay),
)
