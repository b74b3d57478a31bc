"""Verdicts on claims and premises, based on differences paired by seed.

Premises are claims that must hold for the other claims of an experiment to be meaningful.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from posenc.report.claim import Claim, Clause
from posenc.report.confidence import TInterval, t_interval
from posenc.report.experiment import Experiment
from posenc.report.outcome import NoVerdictError, Outcome, combine, compare
from posenc.report.paired_samples import paired_samples

INCLUDES_MARGIN = "the interval includes the margin; more seeds would narrow it"
NO_TRAIN_LENGTH = "no run matches the claim's left side at a training length that the claim covers"


@dataclass(frozen=True)
class ClauseVerdict:
    """The outcome of one clause, with its numbers.

    `left` and `right` are means over `seeds` in the unit of the left side; `right` includes the
    factor `times`. For ratios, they are geometric means and `difference` is left / right - 1; for
    relative changes, it is (1 + left) / (1 + right) - 1; otherwise left - right. `reason` says why
    the clause neither holds nor fails; for "premise not met", see `Verdict.unmet`.
    """

    clause: Clause
    outcome: Outcome
    reason: str | None = None
    seeds: tuple[int, ...] = ()
    left: float | None = None
    right: float | None = None
    difference: TInterval | None = None


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim at one training length.

    `train_length` is None if the claim covers no run. `unmet` has the verdicts on the premises that
    do not hold; if there are any, the claim neither holds nor fails.
    """

    claim: Claim
    train_length: int | None
    clauses: tuple[ClauseVerdict, ...]
    unmet: tuple["Verdict", ...] = ()

    @property
    def outcome(self) -> Outcome:
        return combine(clause.outcome for clause in self.clauses)


def judge(claims: Sequence[Claim], experiment: Experiment) -> list[Verdict]:
    """Return a verdict for each claim at each training length that it covers."""
    return [verdict for claim in claims for verdict in _verdicts(claim, experiment)]


def _verdicts(claim: Claim, experiment: Experiment) -> list[Verdict]:
    selectors = [clause.left.values[0].selector for clause in claim.clauses]
    available = {
        run.train_length
        for run in experiment.runs
        if any(run.matches(selector) for selector in selectors)
    }
    lengths_by_clause = [
        (clause, clause.train_lengths.select(available)) for clause in claim.clauses
    ]
    verdicts = []
    for length in sorted({length for _, lengths in lengths_by_clause for length in lengths}):
        clauses = [clause for clause, lengths in lengths_by_clause if length in lengths]
        results = tuple(_judge_clause(clause, length, experiment) for clause in clauses)
        verdicts.append(Verdict(claim, length, results))
    if verdicts:
        return verdicts
    missing = (ClauseVerdict(clause, "not measured", NO_TRAIN_LENGTH) for clause in claim.clauses)
    return [Verdict(claim, None, tuple(missing))]


def _judge_clause(clause: Clause, train_length: int, experiment: Experiment) -> ClauseVerdict:
    try:
        pairs, problem = paired_samples(clause, train_length, experiment)
    except NoVerdictError as error:
        return ClauseVerdict(clause, error.outcome, error.reason)
    scale = clause.scale
    differences = [left - right for left, right in pairs.values()]
    interval = t_interval(differences, clause.interval_confidence)
    outcome, reason = "undecided", INCLUDES_MARGIN
    if problem:
        outcome, reason = problem.outcome, problem.reason
    elif interval.low is not None and interval.high is not None:
        margin = scale.margin(clause.margin)
        outcome = compare(clause.comparison, interval.low, interval.high, margin)
        reason = INCLUDES_MARGIN if outcome == "undecided" else None
    bounds = (None if x is None else scale.difference(x) for x in (interval.low, interval.high))
    return ClauseVerdict(
        clause,
        outcome,
        reason,
        tuple(pairs),
        left=scale.to_unit(fmean(left for left, _ in pairs.values())),
        right=scale.to_unit(fmean(right for _, right in pairs.values())),
        difference=TInterval(scale.difference(interval.mean), *bounds),
    )


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on an experiment's premises and claims; see `judge_experiment`."""

    premises: Sequence[Verdict]
    claims: Sequence[Verdict]

    @property
    def by_heading(self) -> dict[str, Sequence[Verdict]]:
        """The premises and the claims by heading; a group without verdicts is omitted."""
        by_heading = {"Premises": self.premises, "Claims": self.claims}
        return {heading: verdicts for heading, verdicts in by_heading.items() if verdicts}


def judge_experiment(experiment: Experiment) -> Verdicts:
    """Return the verdicts on the premises and claims of an experiment.

    If a premise that applies to a claim does not hold, all clauses of the claim have the outcome
    "premise not met".
    """
    premises = judge(experiment.premises, experiment)
    claims = judge(experiment.claims, experiment)
    return Verdicts(premises, [_apply_premises(premises, verdict) for verdict in claims])


def _apply_premises(premises: Sequence[Verdict], verdict: Verdict) -> Verdict:
    """Return the verdict on a claim, changed to "premise not met" if a premise does not hold."""
    applicable = _applicable_premises(premises, _training_lengths(verdict))
    unmet = tuple(premise for premise in applicable if premise.outcome != "holds")
    if not unmet:
        return verdict
    clauses = (replace(clause, outcome="premise not met") for clause in verdict.clauses)
    return replace(verdict, clauses=tuple(clauses), unmet=unmet)


def _applicable_premises(premises: Sequence[Verdict], lengths: set[int]) -> list[Verdict]:
    """Return the verdicts on premises that apply to a claim about runs of these training lengths.

    If a premise was judged at any of these lengths, its verdicts at these lengths apply. Otherwise,
    all of its verdicts apply.
    """
    matched = {id(p.claim) for p in premises if p.train_length in lengths}
    return [p for p in premises if p.train_length in lengths or id(p.claim) not in matched]


def _training_lengths(verdict: Verdict) -> set[int]:
    """Return the training lengths of all runs that a claim compares."""
    length = verdict.train_length
    if length is None:
        return set()
    values = (value for result in verdict.clauses for value in result.clause.values)
    return {length, *(value.train_length.num_tokens(length) for value in values)}
