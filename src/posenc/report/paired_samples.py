"""The two sides of a clause, paired by seed.

With the same seed, every encoding is trained on the same tokens in the same order and scored on the
same tokens, so the effect of the seed cancels in the difference of the two sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from posenc.report.claim import MIN_SEEDS, Clause
from posenc.report.claim_sides import Length, Ngram, Side
from posenc.report.comparability import check_comparable, ngram_loss
from posenc.report.experiment import Experiment
from posenc.report.outcome import NoVerdictError
from posenc.report.run_samples import (
    Sample,
    evaluation_length,
    longest_length,
    runs_by_seed,
    sample,
    train_command,
)


@dataclass(frozen=True)
class Pairs:
    """The numbers of both sides by seed; `error` is None if there are enough for a verdict."""

    seeds: tuple[int, ...]
    left: tuple[float, ...]
    right: tuple[float, ...]
    error: NoVerdictError | None


def paired_samples(clause: Clause, train_length: int, experiment: Experiment) -> Pairs:
    """Return the numbers of both sides for every seed that has both.

    Raises NoVerdictError if a side has no runs or the sides are not comparable.
    """
    values = clause.values
    runs = [runs_by_seed(value, train_length, experiment) for value in values]
    longest = longest_length(list(zip(values, runs, strict=True)))
    lengths = [evaluation_length(value, train_length, longest) for value in values]
    pairs: dict[int, tuple[float, float]] = {}
    errors: list[NoVerdictError] = []
    for seed in sorted(set.intersection(*map(set, runs))):
        measured = zip(values, (by_seed[seed] for by_seed in runs), lengths, strict=True)
        try:
            samples = [sample(*arguments, experiment) for arguments in measured]
            pairs[seed] = _pair(clause, samples, train_length)
        except NoVerdictError as error:
            if error.outcome == "not comparable":
                raise
            errors.append(error)
    if len(pairs) < MIN_SEEDS:
        errors.append(_too_few_seeds(list(pairs), experiment))
    return Pairs(
        seeds=tuple(pairs),
        left=tuple(left for left, _ in pairs.values()),
        right=tuple(right for _, right in pairs.values()),
        error=errors[0] if len(pairs) < MIN_SEEDS else None,
    )


def _pair(clause: Clause, samples: Sequence[Sample], train_length: int) -> tuple[float, float]:
    """Return the numbers of both sides for one seed. Raises NoVerdictError if not comparable."""
    count = len(clause.left.values)
    left, right = samples[:count], samples[count:]
    check_comparable(left, right)
    return _number(clause.left, left), _right_number(clause, left, right, train_length)


def _number(side: Side, samples: Sequence[Sample]) -> float:
    return side.combine([s.number for s in samples], [s.length for s in samples])


def _right_number(
    clause: Clause, left: Sequence[Sample], right: Sequence[Sample], train_length: int
) -> float:
    side = clause.right
    if isinstance(side, Length):
        return float(side.tokens(train_length))
    if isinstance(side, float):
        return clause.scale.to_scale(side)
    if isinstance(side, Ngram):
        return ngram_loss(side, left[0])
    return clause.scale.multiply(_number(side, right), clause.times)


def _too_few_seeds(complete: Sequence[int], experiment: Experiment) -> NoVerdictError:
    # The command adds the fewest new seeds that allow an interval.
    unused = [seed for seed in range(1, 2 * MIN_SEEDS + 1) if seed not in complete]
    seeds = sorted([*complete, *unused[: MIN_SEEDS - len(complete)]])
    command = train_command(experiment.command, {"seed": seeds})
    return NoVerdictError(
        "too few seeds",
        f"{len(complete)} of the {MIN_SEEDS} required seeds have results for both sides; run"
        f" `{command}`",
    )
