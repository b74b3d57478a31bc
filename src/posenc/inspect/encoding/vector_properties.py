"""Properties of position vectors: uniqueness, magnitude, and linear relations between positions.

A position vector [C] is either the vector that an encoding adds to a token embedding, or the result
of rotating an all-ones query vector. If an encoding has none, its biases by distance [N, H] (zeros
for NoPE) are measured instead, except for linear relations and constant channels.
"""

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.inspect.encoding.hook_outputs import bias_by_distance, position_vectors
from posenc.inspect.encoding.inspected_encoding import (
    EXTRAPOLATION_FACTOR,
    InspectedEncoding,
    NotApplicableError,
    PropertyGroup,
    PropertyValue,
)

MAX_SEARCHED_POSITIONS = 32_768
FAR_POSITION = 100_000
EQUAL_TOLERANCE = 1e-9
FIRST_REPEAT, LENGTH_CHANGE, SEED_CHANGE = "first repeat", "length change", "seed change"
MAX_WITHIN_L, MAX_FAR, RMS = "max within L", "max at 100,000", "RMS"
LINEAR_STEPS = (1, 16, 64)
LINEAR_POSITIONS = 2048
WIDTHS = (64, 256, 1024)
CONSTANT_TOLERANCE = 0.01  # relative to the RMS
LINEAR_NAMES = [f"linear residual k={step}" for step in LINEAR_STEPS]
CONSTANT_NAMES = [f"constant channels d={width}" for width in WIDTHS]


def measure_first_repeat(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Search MAX_SEARCHED_POSITIONS positions, or 4L distances, for a vector that occurs twice."""
    vectors, kind = _vectors(inspected, MAX_SEARCHED_POSITIONS)
    repeat = first_repeat(vectors)
    if repeat is None:
        description = f"the vectors at all {len(vectors)} {kind} differ"
        return [PropertyValue(f"none up to {len(vectors) - 1}", description)]
    earlier, later = repeat
    return [
        PropertyValue(later, f"{kind.removesuffix('s')} {later} has the same vector as {earlier}")
    ]


def first_repeat(vectors: Tensor) -> tuple[int, int] | None:
    """Return the indices (earlier, later) of the first repeated row of `vectors` [T, C], if any."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(vectors.shape[1], generator=generator, dtype=torch.float64)
    order = (vectors @ direction).sort(stable=True)
    close = (order.values.diff() <= EQUAL_TOLERANCE * direction.norm()).nonzero()[:, 0]
    a, b = order.indices[close], order.indices[close + 1]
    equal = ((vectors[a] - vectors[b]).abs() <= EQUAL_TOLERANCE).all(dim=-1)
    pairs = torch.stack([a, b], dim=-1)[equal].sort(dim=-1).values
    if not len(pairs):
        return None
    earlier, later = pairs[pairs[:, 1].argmin()].tolist()
    return earlier, later


def measure_changes(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Compare the vectors with those in a longer sequence and those with another seed."""
    long_length = inspected.extrapolation_length
    short_length = min(inspected.train_length, long_length // 2)
    vectors, _ = _vectors(inspected, short_length)
    other = inspected.with_next_seed()
    other.encoding.train()  # so that random positions are drawn
    long_vectors, _ = _vectors(inspected, long_length, short_length)
    other_vectors, _ = _vectors(other, short_length)
    length_change, seed_change = (
        (vectors - changed[: len(vectors)]).abs().max().item()
        for changed in (long_vectors, other_vectors)
    )
    lengths = f"{short_length} and {long_length} tokens"
    return [
        PropertyValue(length_change, f"max change between sequences of {lengths}"),
        PropertyValue(seed_change, "max change with another seed, in training mode"),
    ]


def measure_magnitude(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure the magnitude of the vectors; token embeddings have unit variance."""
    vectors, kind = _vectors(inspected, inspected.train_length)
    rms = vectors.square().mean().sqrt().item()
    return [
        PropertyValue(vectors.abs().max().item(), f"max absolute value over {len(vectors)} {kind}"),
        _max_at_far_position(inspected, kind),
        PropertyValue(rms, "root mean square; a token embedding or score has an RMS of 1"),
    ]


@torch.no_grad()
def _max_at_far_position(inspected: InspectedEncoding, kind: str) -> PropertyValue:
    if inspected.max_length is not None and inspected.max_length <= FAR_POSITION:
        return PropertyValue(None, f"the maximum length is {inspected.max_length}")
    if not inspected.has_1d_positions:
        return PropertyValue(None, "coordinates are not positions in a sequence")
    pos = torch.arange(FAR_POSITION - 127, FAR_POSITION + 1)
    values = position_vectors(inspected.encoding, pos)
    layer = inspected.encoding.at_layer(0)
    if values is None:
        head = torch.arange(layer.geometry.heads)[:, None, None]
        values = layer.bias(head, pos.double()[None], pos[-1:, None].double())
    if values is None and layer.overrides("content_bias"):
        return PropertyValue(None, "the bias depends on token content")
    if values is None:
        return PropertyValue(0.0, "there is no bias")
    description = f"max absolute value at {kind} {pos[0]} to {FAR_POSITION}"
    return PropertyValue(values.abs().max().item(), description)


def _vectors(
    inspected: InspectedEncoding, length: int, num_keys: int | None = None
) -> tuple[Tensor, str]:
    """Return position vectors [T, C] and "positions", or biases [N, H] and "distances".

    Returns zeros [T, 1] if there are neither. The biases are those of the last of the first
    `num_keys` tokens (default: all tokens).
    """
    tokens = inspected.clamp_length(length)
    vectors = position_vectors(inspected.encoding, inspected.positions(tokens))
    if vectors is not None:
        return vectors, "positions"
    tokens = min(tokens, EXTRAPOLATION_FACTOR * inspected.train_length)
    bias = bias_by_distance(inspected, tokens, num_keys)
    if bias is None:
        return torch.zeros(tokens, 1, dtype=torch.float64), "positions"
    return bias.mT, "distances"


def measure_linear_residuals(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Fit p(m + k) = p(m) M by least squares: the second property in Fleetwood (2024)."""
    length = inspected.clamp_length(LINEAR_POSITIONS)
    vectors = position_vectors(inspected.encoding, inspected.positions(length))
    if vectors is None:
        raise NotApplicableError("the encoding has no position vectors")
    return [_residual(vectors, step) for step in LINEAR_STEPS]


def _residual(vectors: Tensor, step: int) -> PropertyValue:
    length, channels = vectors.shape
    if length - step <= channels:
        reason = f"{length} positions are too few to test a map of {channels} channels"
        return PropertyValue(None, reason)
    description = f"residual of the best linear map, relative to the change; {length} positions"
    return PropertyValue(relative_residual(vectors, step), description)


def relative_residual(vectors: Tensor, step: int) -> float:
    """Return |P_k - P M| / |P_k - P| for the best M, or 0 if the vectors do not change.

    The rows of P are the vectors of consecutive positions, and the rows of P_k those of the
    positions `step` later. 0 means that the linear relation is exact, 1 that the best linear map is
    no better than the identity.
    """
    before, after = vectors[:-step], vectors[step:]
    change = (after - before).norm().item()
    if change == 0:
        return 0.0
    best = torch.linalg.lstsq(before, after, driver="gelsd").solution
    return (after - before @ best).norm().item() / change


def measure_constant_channels(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure the fraction of channels that hardly change between adjacent positions, by width."""
    if position_vectors(inspected.encoding, inspected.positions(2)) is None:
        raise NotApplicableError("the encoding has no position vectors")
    return [_constant_channels(inspected, width) for width in WIDTHS]


def _constant_channels(inspected: InspectedEncoding, width: int) -> PropertyValue:
    per_head = not inspected.encoding.overrides("embed")
    model_width = width * inspected.config.model.heads if per_head else width
    encoding = inspected.build({"model.width": model_width})
    fraction, change = constant_fraction(encoding, inspected.positions(inspected.train_length))
    return PropertyValue(
        fraction,
        f"fraction of channels that change by less than {CONSTANT_TOLERANCE:.0%} of the RMS from"
        f" one position to the next (RMS change: {change:.2g});"
        f" {'head' if per_head else 'model'} width {width}",
    )


def constant_fraction(encoding: Encoding, pos: Tensor) -> tuple[float, float]:
    """Return the fraction of nearly constant channels, and the RMS change relative to the RMS."""
    vectors = position_vectors(encoding, pos)
    assert vectors is not None
    rms = vectors.square().mean().sqrt()
    changes = (vectors[1:] - vectors[:-1]).square().mean(dim=0).sqrt() / rms
    fraction = (changes < CONSTANT_TOLERANCE).double().mean().item()
    return fraction, changes.square().mean().sqrt().item()


GROUPS = (
    PropertyGroup("vectors", [FIRST_REPEAT], measure_first_repeat),
    PropertyGroup("vectors", [LENGTH_CHANGE, SEED_CHANGE], measure_changes),
    PropertyGroup("vectors", [MAX_WITHIN_L, MAX_FAR, RMS], measure_magnitude),
    PropertyGroup("vectors", LINEAR_NAMES, measure_linear_residuals),
    PropertyGroup("vectors", CONSTANT_NAMES, measure_constant_channels),
)
