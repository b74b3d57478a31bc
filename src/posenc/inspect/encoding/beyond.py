"""What happens past the training length: refused, finite, and out of the trained range.

The trained range is that of angles, where there are frequencies: one that completes a turn within L
has seen every angle. Otherwise it is that of each channel's values, or of each head's biases.
"""

import math

from torch import Tensor

from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.inspect.encoding.decay import LONGER
from posenc.inspect.encoding.hooks import code, line, scores, waves_of
from posenc.inspect.encoding.measured import Measured, Property
from posenc.inspect.encoding.relative import contents
from posenc.inspect.encoding.subject import Subject

NAMES = ["longest", "finite at 4L", "out of range at 4L"]
ROUNDING = 1e-9


def beyond(subject: Subject) -> list[Measured]:
    """The longest sequence, and how much of the encoding is new at 4 L."""
    longest, longer = subject.limit, LONGER * subject.length
    if longest is not None and longest < longer:
        said = f"{longest + 1} tokens are refused"
        return [
            Measured(NAMES[0], float(longest), said),
            *(Measured(name, None, said) for name in NAMES[1:]),
        ]
    found = scores(subject.encoding, *contents(subject, longer), subject.positions(longer))
    finite = found.isfinite().double().mean().item()
    return [
        Measured(NAMES[0], "any" if longest is None else float(longest), "tokens"),
        Measured(NAMES[1], finite, f"share of the scores of {longer} tokens"),
        _out_of_range(subject, longer),
    ]


def _out_of_range(subject: Subject, longer: int) -> Measured:
    name, waves = NAMES[2], waves_of(subject)
    lengths = (subject.length, longer)
    if waves is not None:
        new, never = new_angles(waves, subject, longer)
        said = f"share of {len(new)} frequencies; {int(never.sum())} complete no turn in L"
        return Measured(name, new.double().mean().item(), said)
    pair = [code(subject.encoding, subject.positions(n)) for n in lengths]
    what = "channels"
    if pair[0] is None or pair[1] is None:
        lines = [line(subject.encoding, subject.positions(n), n - 1) for n in lengths]
        pair, what = [None if of is None else of.mT for of in lines], "heads"
    if pair[0] is None or pair[1] is None:
        return Measured(name, 0.0, "there is nothing that could be new")
    new = outside(pair[0], pair[1])
    return Measured(name, new.double().mean().item(), f"share of {len(new)} {what}")


def new_angles(
    waves: SinusoidalFrequencies, subject: Subject, longer: int
) -> tuple[Tensor, Tensor]:
    """Which frequencies meet angles at `longer` that L did not have, and which never turn in L."""
    window = (
        subject.encoding.at_layer(0).window() if not subject.encoding.overrides("embed") else None
    )
    spans = []
    for length in (subject.length, longer):
        angles, _ = waves.angles(subject.positions(length))
        seen = angles.flatten(1)[: window or length]
        spans.append(seen.amax(0) - seen.amin(0))
    never = spans[0] < 2 * math.pi
    return never & (spans[1] > spans[0] * (1 + ROUNDING)), never


def outside(trained: Tensor, longer: Tensor) -> Tensor:
    """Which channels [C] of `longer` [N, C] leave their range in `trained` [T, C]."""
    low, high = trained.amin(0) - ROUNDING, trained.amax(0) + ROUNDING
    return ((longer > high) | (longer < low)).any(0)


PROPERTIES = (Property("past L", NAMES, beyond),)
