"""Behavior beyond the training length: the maximum length, finite scores, values out of range.

For encodings with frequencies, the trained range is a range of angles: a frequency that completes a
period within L covers every angle. For other encodings, it is the range of each channel of the
position vectors or, if there are none, of each head's bias.
"""

import math

from torch import Tensor

from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.rotation_ranges import changes_positions
from posenc.inspect.encoding.hook_outputs import (
    bias_by_distance,
    find_sinusoidal_frequencies,
    last_query_scores,
    position_vectors,
    random_content,
)
from posenc.inspect.encoding.inspected_encoding import (
    EXTRAPOLATION_FACTOR,
    InspectedEncoding,
    PropertyGroup,
    PropertyValue,
)

NAMES = ["max length", "finite at 4L", "out of range at 4L"]
ROUNDING_ERROR = 1e-9


def measure_extrapolation(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure the maximum length and the fractions of finite and out-of-range values at 4L."""
    limit, test_length = inspected.max_length, EXTRAPOLATION_FACTOR * inspected.train_length
    if limit is not None and limit < test_length:
        reason = f"sequences longer than {limit} tokens are rejected"
        return [PropertyValue(value, reason) for value in (float(limit), None, None)]
    content = random_content(inspected, test_length)
    scores = last_query_scores(inspected.encoding, *content, inspected.positions(test_length))
    finite = scores.isfinite().double().mean().item()
    return [
        PropertyValue("unlimited" if limit is None else float(limit), "tokens"),
        PropertyValue(finite, f"fraction of the last token's scores, {test_length} tokens"),
        _out_of_range_fraction(inspected, test_length),
    ]


def _out_of_range_fraction(inspected: InspectedEncoding, test_length: int) -> PropertyValue:
    """Return the fraction of frequencies, channels or heads outside the trained range."""
    if changes_positions(inspected.encoding.at_layer(0)):
        return PropertyValue(None, "positions are not token indices")
    sinusoids = find_sinusoidal_frequencies(inspected)
    if sinusoids is not None:
        exceeded, incomplete = frequency_masks(sinusoids, inspected, test_length)
        kind = f"frequencies; {int(incomplete.sum())} do not complete a period within L"
        return _fraction(exceeded, kind)
    lengths = inspected.train_length, test_length
    values = [position_vectors(inspected.encoding, inspected.positions(n)) for n in lengths]
    kind = "channels"
    if values[0] is None:
        biases = [bias_by_distance(inspected, n) for n in lengths]
        values, kind = [None if bias is None else bias.mT for bias in biases], "heads"
    trained, extended = values
    if trained is None or extended is None:
        return PropertyValue(0.0, "no position vectors or biases")
    return _fraction(exceeds_trained_range(trained, extended), kind)


def _fraction(exceeded: Tensor, kind: str) -> PropertyValue:
    fraction = exceeded.double().mean().item()
    return PropertyValue(fraction, f"fraction of {len(exceeded)} {kind}")


def frequency_masks(
    sinusoids: SinusoidalFrequencies, inspected: InspectedEncoding, test_length: int
) -> tuple[Tensor, Tensor]:
    """Return two masks: frequencies with new angles beyond L, and those with no full period in L.

    With an attention window, only angles between tokens within the window count.
    """
    absolute = inspected.encoding.overrides("embed")
    window = None if absolute else inspected.encoding.at_layer(0).window()
    spans = []
    for length in (inspected.train_length, test_length):
        angles, _ = sinusoids.angles(inspected.positions(length))
        visible = angles.flatten(1)[: window or length]
        spans.append(visible.amax(0) - visible.amin(0))
    incomplete = spans[0] < 2 * math.pi
    return incomplete & (spans[1] > spans[0] * (1 + ROUNDING_ERROR)), incomplete


def exceeds_trained_range(trained: Tensor, extended: Tensor) -> Tensor:
    """Return which channels [C] of `extended` [N, C] leave their range in `trained` [T, C]."""
    low, high = trained.amin(0) - ROUNDING_ERROR, trained.amax(0) + ROUNDING_ERROR
    return ((extended > high) | (extended < low)).any(0)


GROUPS = (PropertyGroup("extrapolation", NAMES, measure_extrapolation),)
