"""Verdicts on claims: holds, fails or undecided, from differences paired by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from posenc.report.claim import Claim, Clause, Outcome, compare
from posenc.report.confidence import Estimate, estimate
from posenc.report.experiment import Experiment
from posenc.report.paired_samples import MissingData, paired_samples

INCLUDES_MARGIN = "the interval includes the margin; more seeds narrow it"
NO_TRAIN_LENGTH = "no run of the experiment has a training length that the claim is about"


@dataclass(frozen=True)
class ClauseVerdict:
    """The outcome of one comparison and its numbers.

    `left` and `right` are means over `seeds` in the unit of the quantity (geometric means of
    ratios), the right one with its factor. `difference` is left / right - 1 for ratios, else
    left - right. `reason` says why an outcome is undecided.
    """

    clause: Clause
    outcome: Outcome = "undecided"
    reason: str | None = None
    seeds: tuple[int, ...] = ()
    left: float | None = None
    right: float | None = None
    difference: Estimate | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim at one training length; `train_length` is None where no run has one it is about."""

    claim: Claim
    train_length: int | None
    clauses: tuple[ClauseVerdict, ...]

    @property
    def outcome(self) -> Outcome:
        """Fails where one clause fails, holds where all hold."""
        outcomes = {clause.outcome for clause in self.clauses}
        if "fails" in outcomes:
            return "fails"
        return "undecided" if "undecided" in outcomes else "holds"


def judge(claims: Sequence[Claim], experiment: Experiment) -> list[Verdict]:
    """Return a verdict for every claim at every training length that it is about."""
    return [verdict for claim in claims for verdict in _verdicts(claim, experiment)]


def _verdicts(claim: Claim, experiment: Experiment) -> list[Verdict]:
    lengths_of = [(clause, _train_lengths(clause, experiment)) for clause in claim.clauses]
    verdicts = []
    for length in sorted({length for _, lengths in lengths_of for length in lengths}):
        clauses = [clause for clause, lengths in lengths_of if length in lengths]
        judged = tuple(_judge_clause(clause, length, experiment) for clause in clauses)
        verdicts.append(Verdict(claim, length, judged))
    if verdicts:
        return verdicts
    undecided = (ClauseVerdict(clause, reason=NO_TRAIN_LENGTH) for clause in claim.clauses)
    return [Verdict(claim, None, tuple(undecided))]


def _train_lengths(clause: Clause, experiment: Experiment) -> list[int]:
    """Return every L that a clause names, or that runs of its left side were trained at."""
    return clause.train_lengths.select(
        run.train_length for run in experiment.runs if run.matches(clause.left.selector)
    )


def _judge_clause(clause: Clause, train_length: int, experiment: Experiment) -> ClauseVerdict:
    try:
        pairs = paired_samples(clause, train_length, experiment)
    except MissingData as error:
        return ClauseVerdict(clause, reason=str(error))
    if not pairs.seeds:
        return ClauseVerdict(clause, reason=pairs.missing)
    quantity = clause.left.quantity
    differences = [a - b for a, b in zip(pairs.left, pairs.right, strict=True)]
    interval = estimate(differences, clause.confidence)
    ends = (None if x is None else quantity.relative(x) for x in (interval.low, interval.high))
    verdict = ClauseVerdict(
        clause,
        reason=pairs.missing,
        seeds=pairs.seeds,
        left=quantity.in_unit(fmean(pairs.left)),
        right=quantity.in_unit(fmean(pairs.right)),
        difference=Estimate(quantity.relative(interval.mean), *ends),
    )
    if pairs.missing or interval.low is None or interval.high is None:
        return verdict
    margin = math.log1p(clause.margin) if quantity.ratio else clause.margin
    outcome = compare(clause.comparison, interval.low, interval.high, margin)
    reason = INCLUDES_MARGIN if outcome == "undecided" else None
    return replace(verdict, outcome=outcome, reason=reason)
