"""Verdicts on claims: holds, fails or undecided, from differences paired by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from posenc.report.claim import Claim, Clause
from posenc.report.claim_selectors import matches
from posenc.report.comparisons import Outcome
from posenc.report.confidence import Estimate, estimate
from posenc.report.paired_samples import Evidence, MissingData, paired_samples
from posenc.report.quantities import Quantity

INCLUDES_MARGIN = "the interval includes the margin; more seeds narrow it"
NO_TRAIN_LENGTH = "no run of the experiment has a training length that the claim is about"


@dataclass(frozen=True)
class ClauseVerdict:
    """The outcome of one comparison and its numbers.

    `left` and `right` are means over `seeds` in `unit` (geometric where `ratio`), the right one
    with its factor. `difference` is left / right - 1 where `ratio`, else left - right; its
    deviation stays on the scale of comparison. `reason` says why an outcome is undecided.
    """

    text: str
    outcome: Outcome
    unit: str
    ratio: bool
    margin: float
    confidence: float
    seeds: tuple[int, ...] = ()
    left: float | None = None
    right: float | None = None
    difference: Estimate | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim at one training length; `train_length` is None where no run has one it is about."""

    statement: str
    train_length: int | None
    published: str | None
    clauses: tuple[ClauseVerdict, ...]

    @property
    def outcome(self) -> Outcome:
        """Fails where one clause fails, holds where all hold."""
        outcomes = {clause.outcome for clause in self.clauses}
        if "fails" in outcomes:
            return "fails"
        return "undecided" if "undecided" in outcomes else "holds"


def judge(claims: Sequence[Claim], evidence: Evidence) -> list[Verdict]:
    """Return a verdict for every claim at every training length that it is about."""
    return [verdict for claim in claims for verdict in _verdicts(claim, evidence)]


def _verdicts(claim: Claim, evidence: Evidence) -> list[Verdict]:
    lengths_of = [(clause, _train_lengths(clause, evidence)) for clause in claim.clauses]
    verdicts = []
    for length in sorted({length for _, lengths in lengths_of for length in lengths}):
        clauses = [clause for clause, lengths in lengths_of if length in lengths]
        judged = tuple(_judge_clause(clause, length, evidence) for clause in clauses)
        verdicts.append(Verdict(claim.statement, length, claim.published, judged))
    if verdicts:
        return verdicts
    undecided = tuple(_undecided(clause, NO_TRAIN_LENGTH) for clause in claim.clauses)
    return [Verdict(claim.statement, None, claim.published, undecided)]


def _train_lengths(clause: Clause, evidence: Evidence) -> list[int]:
    """Return every L that a clause names, or that runs of its left side were trained at."""
    configs = [run.config for run in evidence.runs]
    return clause.train_lengths.select(
        config["train_length"] for config in configs if matches(config, clause.left.selector)
    )


def _judge_clause(clause: Clause, train_length: int, evidence: Evidence) -> ClauseVerdict:
    try:
        pairs = paired_samples(clause, train_length, evidence)
    except MissingData as error:
        return _undecided(clause, str(error))
    if not pairs.seeds:
        return _undecided(clause, pairs.missing)
    quantity = clause.left.quantity
    differences = [a - b for a, b in zip(pairs.left, pairs.right, strict=True)]
    interval = estimate(differences, clause.confidence)
    verdict = replace(
        _undecided(clause, pairs.missing),
        seeds=pairs.seeds,
        left=quantity.in_unit(fmean(pairs.left)),
        right=quantity.in_unit(fmean(pairs.right)),
        difference=_reported(interval, quantity),
    )
    if pairs.missing or interval.low is None or interval.high is None:
        return verdict
    margin = math.log1p(clause.margin) if quantity.ratio else clause.margin
    outcome = clause.comparison.outcome(interval.low, interval.high, margin)
    reason = INCLUDES_MARGIN if outcome == "undecided" else None
    return replace(verdict, outcome=outcome, reason=reason)


def _undecided(clause: Clause, reason: str | None) -> ClauseVerdict:
    return ClauseVerdict(
        text=str(clause),
        outcome="undecided",
        unit=clause.left.quantity.unit,
        ratio=clause.left.quantity.ratio,
        margin=clause.margin,
        confidence=clause.confidence,
        reason=reason,
    )


def _reported(interval: Estimate, quantity: Quantity) -> Estimate:
    """Return differences as ratios minus 1 where the quantity is one; the deviation stays."""
    mean = quantity.relative(interval.mean)
    low, high = (
        None if end is None else quantity.relative(end) for end in (interval.low, interval.high)
    )
    return Estimate(mean, interval.deviation, low, high)
