"""Verdicts on claims (holds, fails or undecided), based on differences paired by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from posenc.report.claim import Claim, Clause, Outcome, compare
from posenc.report.confidence import TInterval, t_interval
from posenc.report.experiment import Experiment
from posenc.report.paired_samples import MissingData, paired_samples

INCLUDES_MARGIN = "the interval includes the margin; more seeds would narrow it"
NO_TRAIN_LENGTH = "no run in the experiment has a training length that the claim covers"


@dataclass(frozen=True)
class ClauseVerdict:
    """The outcome of one comparison, with its numbers.

    `left` and `right` are means over `seeds` in the unit of the quantity; `right` includes the
    factor `times`. For quantities compared as ratios, they are geometric means and `difference` is
    left / right - 1; otherwise `difference` is left - right. `reason` explains why the outcome is
    undecided.
    """

    clause: Clause
    outcome: Outcome = "undecided"
    reason: str | None = None
    seeds: tuple[int, ...] = ()
    left: float | None = None
    right: float | None = None
    difference: TInterval | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim judged at one training length, which is None if no run has one that it covers."""

    claim: Claim
    train_length: int | None
    clauses: tuple[ClauseVerdict, ...]

    @property
    def outcome(self) -> Outcome:
        """The claim fails if any clause fails, and holds if all clauses hold."""
        outcomes = {clause.outcome for clause in self.clauses}
        if "fails" in outcomes:
            return "fails"
        return "undecided" if "undecided" in outcomes else "holds"


def judge(claims: Sequence[Claim], experiment: Experiment) -> list[Verdict]:
    """Return a verdict for each claim at each training length that it covers."""
    return [verdict for claim in claims for verdict in _verdicts(claim, experiment)]


def _verdicts(claim: Claim, experiment: Experiment) -> list[Verdict]:
    lengths_by_clause = []
    for clause in claim.clauses:
        runs = (run for run in experiment.runs if run.matches(clause.left.selector))
        lengths = clause.train_lengths.select(run.train_length for run in runs)
        lengths_by_clause.append((clause, lengths))
    verdicts = []
    for length in sorted({length for _, lengths in lengths_by_clause for length in lengths}):
        clauses = [clause for clause, lengths in lengths_by_clause if length in lengths]
        judged = tuple(_judge_clause(clause, length, experiment) for clause in clauses)
        verdicts.append(Verdict(claim, length, judged))
    if verdicts:
        return verdicts
    undecided = (ClauseVerdict(clause, reason=NO_TRAIN_LENGTH) for clause in claim.clauses)
    return [Verdict(claim, None, tuple(undecided))]


def _judge_clause(clause: Clause, train_length: int, experiment: Experiment) -> ClauseVerdict:
    try:
        pairs = paired_samples(clause, train_length, experiment)
    except MissingData as error:
        return ClauseVerdict(clause, reason=str(error))
    if not pairs.seeds:
        return ClauseVerdict(clause, reason=pairs.missing)
    quantity = clause.left.quantity
    differences = [a - b for a, b in zip(pairs.left, pairs.right, strict=True)]
    interval = t_interval(differences, clause.confidence)
    ends = (None if x is None else quantity.relative(x) for x in (interval.low, interval.high))
    verdict = ClauseVerdict(
        clause,
        reason=pairs.missing,
        seeds=pairs.seeds,
        left=quantity.in_unit(fmean(pairs.left)),
        right=quantity.in_unit(fmean(pairs.right)),
        difference=TInterval(quantity.relative(interval.mean), *ends),
    )
    if pairs.missing or interval.low is None or interval.high is None:
        return verdict
    margin = math.log1p(clause.margin) if quantity.compared_as_ratio else clause.margin
    outcome = compare(clause.comparison, interval.low, interval.high, margin)
    reason = INCLUDES_MARGIN if outcome == "undecided" else None
    return replace(verdict, outcome=outcome, reason=reason)
