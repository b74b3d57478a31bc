"""Both sides of a comparison, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from posenc.claims.evidence import Evidence
from posenc.claims.grammar import Clause, Value
from posenc.claims.intervals import FEWEST_SEEDS
from posenc.claims.lengths import Length
from posenc.claims.remedies import more_seeds
from posenc.claims.samples import (
    Lacking,
    Sample,
    length_of,
    longest_of,
    refuse_other_streams,
    runs_of,
    sample_of,
)


@dataclass(frozen=True)
class Pairs:
    """Numbers on the scale of comparison by seed; `lack` says why they are too few, if they are."""

    seeds: tuple[int, ...]
    left: tuple[float, ...]
    right: tuple[float, ...]
    lack: str | None


def pairs_of(clause: Clause, train_length: int, evidence: Evidence) -> Pairs:
    """The seeds that both sides were measured with; Lacking where the sides cannot be compared.

    For one seed every encoding sees the same tokens in the same order and is scored on the same
    tokens, so what is a seed's own cancels in the difference of the two sides.
    """
    values = [side for side in (clause.left, clause.right) if isinstance(side, Value)]
    runs = [runs_of(value, train_length, evidence) for value in values]
    longest = longest_of(list(zip(values, runs, strict=True)))
    lengths = [length_of(value, train_length, longest) for value in values]
    whole: dict[int, list[Sample]] = {}
    lacking: list[str] = []
    for seed in sorted(set.intersection(*map(set, runs))):
        sides = zip(values, (by_seed[seed] for by_seed in runs), lengths, strict=True)
        try:
            samples = [sample_of(*side, evidence) for side in sides]
        except Lacking as lack:
            lacking.append(str(lack))
            continue
        refuse_other_streams(samples)
        whole[seed] = samples
    few = f"{len(whole)} of {FEWEST_SEEDS} seeds that both sides need"
    lacking.append(f"{few}; `{more_seeds(evidence, list(whole))}`")
    return Pairs(
        seeds=tuple(whole),
        left=tuple(samples[0].number for samples in whole.values()),
        right=tuple(_right(clause, samples, train_length) for samples in whole.values()),
        lack=lacking[0] if len(whole) < FEWEST_SEEDS else None,
    )


def _right(clause: Clause, samples: Sequence[Sample], train_length: int) -> float:
    right, ratio = clause.right, clause.left.quantity.ratio
    if isinstance(right, Value):
        number = samples[1].number
        return number + math.log(right.times) if ratio else number * right.times
    if isinstance(right, Length):
        return float(right.at(train_length))
    return math.log(right) if ratio else right
