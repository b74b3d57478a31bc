"""Properties of scores: shift invariance, number of axes, and decay with distance.

Token content has unit variance. The expected score of identical tokens, E[s(x, x)], is exact if
scores are bilinear in content: the samples are sqrt(d) times the rows of an orthogonal matrix and,
if position embeddings are added to them, also their negatives. Their second moment is therefore the
identity and, with the negatives, their mean is zero.
"""

from functools import cache

import torch
from torch import Tensor

from posenc.attention.reference import attention_weights, visible_keys
from posenc.config.errors import one_line
from posenc.encodings.base import Encoding
from posenc.inspect.encoding.hook_outputs import (
    added_vectors,
    last_query_scores,
    random_content,
    random_normal,
)
from posenc.inspect.encoding.inspected_encoding import (
    InspectedEncoding,
    NotApplicableError,
    PropertyGroup,
    PropertyValue,
)

SHIFTED_TOKENS, SHIFT = 64, 1000
GRID_SIZE = 6  # tokens per side
NUM_AXES = (2, 3)  # tried in this order until one is supported
SCORE_SHIFT, PRODUCT_SHIFT, AXES = "score shift error", "product shift error", "axes"
BATCH_SIZE = 16
RANDOM_SAMPLES = 4
WINDOW_WEIGHT = 0.9  # attention weight within an effective window
WEIGHT_TOLERANCE = 1e-12
DISTANCES = (0, 1, 16)
IDENTICAL_NAMES = [f"identical tokens at {n}" for n in (*DISTANCES, "L", "4L")]
RANDOM_NAMES = ["random tokens at L", "random tokens at 4L"]
WINDOW_NAMES = ["narrowest window", "widest window"]


def measure_shift_errors(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure how much scores and products of position embeddings change if positions shift."""
    if not inspected.has_1d_positions:
        raise NotApplicableError("coordinates are not positions in a sequence")
    limit = inspected.max_length
    tokens = SHIFTED_TOKENS if limit is None else min(SHIFTED_TOKENS, limit // 2)
    pos = inspected.positions(tokens)
    last = int(pos.max())
    shift = inspected.clamp_length(last + 1 + SHIFT) - 1 - last
    content = random_content(inspected, tokens)
    scores, shifted = (
        last_query_scores(inspected.encoding, *content, p) for p in (pos, pos + shift)
    )
    description = f"max change of a score if all positions shift by {shift}; scores have variance 1"
    error = (scores - shifted).abs().max().item()
    return [PropertyValue(error, description), _product_shift(inspected, pos, shift)]


def _product_shift(inspected: InspectedEncoding, pos: Tensor, shift: int) -> PropertyValue:
    p, shifted = (added_vectors(inspected.encoding, n) for n in (pos, pos + shift))
    if p is None or shifted is None:
        return PropertyValue(None, "nothing is added to token embeddings")
    change = (p @ p.mT - shifted @ shifted.mT).abs().max() / p.square().sum(-1).mean()
    description = f"max change of <p_m, p_n> relative to |p|^2 if m and n shift by {shift}"
    return PropertyValue(change.item(), description)


def measure_axes(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Test whether positions may have 2 or 3 coordinates, and whether these have an effect."""
    reasons = []
    for axes in NUM_AXES:
        grid = torch.cartesian_prod(*[torch.arange(GRID_SIZE)] * axes)[None].double()
        content = random_content(inspected, GRID_SIZE**axes)
        stretched_grid = grid * (1 + 2 * (torch.arange(axes) == 1))
        try:
            scores, moved, stretched = (
                last_query_scores(inspected.encoding, *content, points)
                for points in (grid, grid + 7.0, stretched_grid)
            )
        except Exception as error:  # a user's encoding may raise anything for coordinates
            reasons.append(f"{axes} axes are not supported: {one_line(error)}")
            continue
        if (scores - stretched).abs().max() == 0:
            return [PropertyValue(1.0, f"{axes} axes are accepted but have no effect")]
        change = (scores - moved).abs().max().item()
        description = f"if a grid of tokens moves along all axes, scores change by {change:.1e}"
        return [PropertyValue(float(axes), description)]
    return [PropertyValue(1.0, reasons[0])]


def measure_decay(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure expected scores of identical and of random tokens, and effective windows."""
    length = inspected.extrapolation_length
    identical, random = (
        expected_scores(inspected, length, identical=is_identical) for is_identical in (True, False)
    )
    distances = [*DISTANCES, inspected.train_length - 1, length - 1]
    measurements = [_score_at(identical, distance, "identical") for distance in distances]
    measurements += [_score_at(random, distance, "independent") for distance in distances[-2:]]
    windows = effective_windows(inspected.encoding.at_layer(0), random)
    description = (
        f"number of nearest tokens that receive {WINDOW_WEIGHT:.0%} of the attention weight,"
        f" with {length} tokens of context, if only positions matter"
    )
    sizes = float(min(windows)), float(max(windows))
    return measurements + [PropertyValue(size, description) for size in sizes]


def _score_at(scores: Tensor, distance: int, content: str) -> PropertyValue:
    if distance >= scores.shape[-1]:
        return PropertyValue(None, f"the longest distance is {scores.shape[-1] - 1}")
    description = f"expected score between a token and an {content} one at distance {distance}"
    return PropertyValue(scores[:, distance].mean().item(), f"{description}, mean over heads")


@cache
@torch.no_grad()
def expected_scores(inspected: InspectedEncoding, length: int, *, identical: bool) -> Tensor:
    """Return the expected scores [H, N] between the last of `length` tokens and each key.

    N is `length`, and scores are indexed by distance. If `identical`, all tokens have identical
    content; otherwise the content of the query is independent of the content of the keys.
    """
    geometry, pos = inspected.encoding.geometry, inspected.positions(length)
    content = content_samples(inspected)
    if not identical:
        content = torch.cat([content[:RANDOM_SAMPLES], -content[:RANDOM_SAMPLES]])
    total = torch.zeros(geometry.heads, length, dtype=torch.float64)
    for batch in content.split(BATCH_SIZE):
        x = batch[:, None].expand(-1, length, -1)
        k = x.unflatten(-1, (geometry.heads, geometry.head_dim)).transpose(1, 2)
        queries = [k] if identical else [s * random_normal(7, 1, *k.shape[1:]) for s in (1, -1)]
        for q in queries:
            scores = last_query_scores(inspected.encoding, x, q.expand_as(k), k, pos)
            total += scores.sum(0) / len(queries)
    return (total / len(content)).flip(-1)


def content_samples(inspected: InspectedEncoding) -> Tensor:
    """Return samples of token content [S, D] whose second moment per head is the identity."""
    geometry = inspected.encoding.geometry
    width = geometry.head_dim
    samples = torch.linalg.qr(random_normal(6, width, width)).Q * width**0.5
    content = samples.repeat(1, geometry.heads)
    return torch.cat([content, -content]) if inspected.encoding.overrides("embed") else content


def effective_windows(layer: Encoding, bias: Tensor) -> list[int]:
    """Return for each head how many of the nearest keys receive WINDOW_WEIGHT of the attention.

    The bias [H, N] is used as the scores of the last of N queries, indexed by distance.
    """
    length = bias.shape[-1]
    visible = visible_keys(layer, slice(length - 1, length), slice(0, length), bias.device)
    scores = bias.flip(-1)[None, :, None].masked_fill(~visible, -torch.inf)
    cumulative = attention_weights(layer, scores)[0, :, 0].flip(-1).cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]
    return [int((row < WINDOW_WEIGHT - WEIGHT_TOLERANCE).sum()) + 1 for row in cumulative]


GROUPS = (
    PropertyGroup("scores", [SCORE_SHIFT, PRODUCT_SHIFT], measure_shift_errors),
    PropertyGroup("scores", [AXES], measure_axes),
    PropertyGroup("decay", [*IDENTICAL_NAMES, *RANDOM_NAMES, *WINDOW_NAMES], measure_decay),
)
