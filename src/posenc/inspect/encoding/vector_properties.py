"""Properties of position vectors: uniqueness, size, and linear relations between positions.

A position vector [C] is what is added to a token embedding, or a query of ones after rotation. An
encoding without them is measured by its biases by distance [N, H], NoPE by zeros.
"""

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.inspect.encoding.hook_outputs import (
    bias_at_distances,
    bias_of_query,
    position_vectors,
)
from posenc.inspect.encoding.inspected_encoding import (
    InspectedEncoding,
    PropertyGroup,
    PropertyValue,
    inapplicable,
)
from posenc.report.table import Value

REPEAT_RANGE = 32_768
FAR = 100_000
LONGER = 4  # times the training length
EQUAL = 1e-9
FIRST_REPEAT, LENGTH_CHANGE, SEED_CHANGE = "first repeat", "length change", "seed change"
MAX_WITHIN_L, MAX_FAR, RMS = "max within L", "max at 100,000", "RMS"
STEPS = (1, 16, 64)
LINEAR_POSITIONS = 2048
WIDTHS = (64, 256, 1024)
CONSTANT = 0.01
LINEAR = [f"linear residual k={step}" for step in STEPS]
CONSTANT_CHANNELS = [f"constant channels d={width}" for width in WIDTHS]
NO_VECTORS = "the encoding has no position vectors"


def repeats(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Search the first positions for a vector that occurs twice."""
    vectors, kind = _vectors(inspected, REPEAT_RANGE)
    repeat = first_repeat(vectors)
    if repeat is None:
        value: Value = f"none to {len(vectors) - 1}"
        return [PropertyValue(FIRST_REPEAT, value, f"{len(vectors)} {kind} all differ")]
    earlier, later = repeat
    description = f"{kind[:-1]} {later} has the vector of {earlier}"
    return [PropertyValue(FIRST_REPEAT, later, description)]


def first_repeat(vectors: Tensor) -> tuple[int, int] | None:
    """Return the first row of [T, C] that equals an earlier one, as (earlier, later)."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(vectors.shape[1], generator=generator, dtype=torch.float64)
    order = (vectors @ direction).sort(stable=True)
    near = (order.values.diff() <= EQUAL * direction.norm()).nonzero()[:, 0]
    a, b = order.indices[near], order.indices[near + 1]
    equal = ((vectors[a] - vectors[b]).abs() <= EQUAL).all(dim=-1)
    pairs = torch.stack([a, b], dim=-1)[equal].sort(dim=-1).values
    if not len(pairs):
        return None
    earlier, later = pairs[pairs[:, 1].argmin()].tolist()
    return earlier, later


def changes(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Compare the vectors with those in a longer sequence and with those of another seed."""
    longer = inspected.clamp_length(LONGER * inspected.train_length)
    short = min(inspected.train_length, longer // 2)
    vectors, _ = _vectors(inspected, short)
    other = inspected.with_other_seed()
    other.encoding.train()  # so that random positions are drawn
    in_longer, _ = _vectors(inspected, longer, short)
    with_seed, _ = _vectors(other, short)
    by_length, by_seed = (
        (vectors - changed[: len(vectors)]).abs().max().item() for changed in (in_longer, with_seed)
    )
    lengths = f"max change between sequences of {short} and {longer} tokens"
    return [
        PropertyValue(LENGTH_CHANGE, by_length, lengths),
        PropertyValue(SEED_CHANGE, by_seed, "max change with another seed, in training mode"),
    ]


def sizes(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure the size of values, to compare with token embeddings of unit variance."""
    vectors, kind = _vectors(inspected, inspected.train_length)
    rms = vectors.square().mean().sqrt().item()
    return [
        PropertyValue(MAX_WITHIN_L, vectors.abs().max().item(), f"of {len(vectors)} {kind}"),
        _max_far(inspected, kind),
        PropertyValue(RMS, rms, "root mean square; a token embedding or score has 1"),
    ]


def _max_far(inspected: InspectedEncoding, kind: str) -> PropertyValue:
    if inspected.max_length is not None and inspected.max_length <= FAR:
        return PropertyValue(MAX_FAR, None, f"the maximum length is {inspected.max_length}")
    if not inspected.has_1d_positions:
        return PropertyValue(MAX_FAR, None, "coordinates are no distances along a sequence")
    pos = torch.arange(FAR - 127, FAR + 1)
    values = position_vectors(inspected.encoding, pos)
    if values is None:
        values = bias_at_distances(inspected.encoding, pos, FAR)
    if values is None and inspected.encoding.at_layer(0).overrides("content_bias"):
        return PropertyValue(MAX_FAR, None, "the bias depends on token content")
    if values is None:
        return PropertyValue(MAX_FAR, 0.0, "there is no bias")
    return PropertyValue(MAX_FAR, values.abs().max().item(), f"of {kind} {pos[0]} to {FAR}")


def _vectors(
    inspected: InspectedEncoding, length: int, query: int | None = None
) -> tuple[Tensor, str]:
    """Return position vectors [T, C], else biases by distance [N, H], and which they are.

    Biases are those of token number `query`, counted from 1; None stands for the last token.
    """
    tokens = inspected.clamp_length(length)
    vectors = position_vectors(inspected.encoding, inspected.positions(tokens))
    if vectors is not None:
        return vectors, "positions"
    tokens = min(tokens, LONGER * inspected.train_length)
    bias = bias_of_query(inspected.encoding, inspected.positions(tokens), (query or tokens) - 1)
    if bias is None:
        return torch.zeros(tokens, 1, dtype=torch.float64), "positions"
    return bias.mT, "distances"


def linear_residuals(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Fit p(m + k) = p(m) M by least squares, as in Fleetwood's (2024) second property."""
    length = inspected.clamp_length(LINEAR_POSITIONS)
    vectors = position_vectors(inspected.encoding, inspected.positions(length))
    if vectors is None:
        return inapplicable(LINEAR, NO_VECTORS)
    return [_residual(vectors, name, step) for name, step in zip(LINEAR, STEPS, strict=True)]


def _residual(vectors: Tensor, name: str, step: int) -> PropertyValue:
    length, channels = vectors.shape
    if length - step <= channels:
        reason = f"{length} positions are too few to test a map of {channels} channels"
        return PropertyValue(name, None, reason)
    description = f"residual of the best linear map relative to the change; {length} positions"
    return PropertyValue(name, relative_residual(vectors, step), description)


def relative_residual(vectors: Tensor, step: int) -> float:
    """Return |P_k - P M| / |P_k - P| for the best M; 0 where vectors do not change.

    P are the vectors of all positions, P_k those `step` later: 0 is a linear relation, 1 is no
    better than M = 1.
    """
    before, after = vectors[:-step], vectors[step:]
    change = (after - before).norm().item()
    if change == 0:
        return 0.0
    best = torch.linalg.lstsq(before, after, driver="gelsd").solution
    return (after - before @ best).norm().item() / change


def constant_channels(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure which fraction of channels hardly changes between neighbours, by width."""
    if position_vectors(inspected.encoding, inspected.positions(2)) is None:
        return inapplicable(CONSTANT_CHANNELS, NO_VECTORS)
    return [_constant(inspected, *pair) for pair in zip(CONSTANT_CHANNELS, WIDTHS, strict=True)]


def _constant(inspected: InspectedEncoding, name: str, width: int) -> PropertyValue:
    per_head = not inspected.encoding.overrides("embed")
    model_width = width * inspected.config.model.heads if per_head else width
    encoding = inspected.build({"model.width": model_width})
    fraction, change = constant_fraction(encoding, inspected.positions(inspected.train_length))
    return PropertyValue(
        name,
        fraction,
        f"fraction of channels that change by less than {CONSTANT:.0%} of the RMS from one position"
        f" to the next (RMS change: {change:.2g}); {'head' if per_head else 'model'} width {width}",
    )


def constant_fraction(encoding: Encoding, pos: Tensor) -> tuple[float, float]:
    """Return the fraction of near-constant channels, and the RMS change relative to the RMS."""
    vectors = position_vectors(encoding, pos)
    assert vectors is not None
    rms = vectors.square().mean().sqrt()
    change = (vectors[1:] - vectors[:-1]).square().mean(dim=0).sqrt() / rms
    return (change < CONSTANT).double().mean().item(), change.square().mean().sqrt().item()


GROUPS = (
    PropertyGroup("vectors", [FIRST_REPEAT], repeats),
    PropertyGroup("vectors", [LENGTH_CHANGE, SEED_CHANGE], changes),
    PropertyGroup("vectors", [MAX_WITHIN_L, MAX_FAR, RMS], sizes),
    PropertyGroup("vectors", LINEAR, linear_residuals),
    PropertyGroup("vectors", CONSTANT_CHANNELS, constant_channels),
)
