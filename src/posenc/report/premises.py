"""Premises: claims that must hold for the other claims of an experiment to be meaningful."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from posenc.report.experiment import Experiment
from posenc.report.judge import Verdict, judge


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on an experiment's premises and claims; see `judge_experiment`."""

    premises: Sequence[Verdict]
    claims: Sequence[Verdict]


def judge_experiment(experiment: Experiment) -> Verdicts:
    """Return the verdicts on the premises and claims of an experiment.

    If a premise that applies to a claim does not hold, all clauses of the claim have the outcome
    "premise not met".
    """
    premises = judge(experiment.premises, experiment)
    claims = judge(experiment.claims, experiment)
    return Verdicts(premises, [_apply(premises, verdict) for verdict in claims])


def _apply(premises: Sequence[Verdict], verdict: Verdict) -> Verdict:
    """Return the verdict on a claim, changed to "premise not met" if a premise does not hold."""
    applicable = _applicable(premises, _training_lengths(verdict))
    unmet = tuple(premise for premise in applicable if premise.outcome != "holds")
    if not unmet:
        return verdict
    clauses = (replace(clause, outcome="premise not met") for clause in verdict.clauses)
    return replace(verdict, clauses=tuple(clauses), unmet=unmet)


def _applicable(premises: Sequence[Verdict], lengths: set[int]) -> list[Verdict]:
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
    values = (value for judged in verdict.clauses for value in judged.clause.values)
    return {length, *(value.train_length.tokens(length) for value in values)}
