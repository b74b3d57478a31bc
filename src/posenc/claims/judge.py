"""Claims held against what was measured."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from posenc.claims.evidence import Evidence
from posenc.claims.grammar import Claim, Clause
from posenc.claims.intervals import Estimate, estimate
from posenc.claims.pairing import pairs_of
from posenc.claims.quantities import Quantity
from posenc.claims.samples import Lacking
from posenc.claims.selection import matches
from posenc.claims.verdict import Finding, Verdict
from posenc.claims.words import clause_text

ACROSS = "the interval lies across the margin; more seeds narrow it"
ABOUT_NONE = "no run of the experiment has a training length that the claim is about"


def judge(claims: Sequence[Claim], evidence: Evidence) -> list[Verdict]:
    """A verdict for every claim at every training length that it is about."""
    return [verdict for claim in claims for verdict in _verdicts(claim, evidence)]


def _verdicts(claim: Claim, evidence: Evidence) -> list[Verdict]:
    about = [(clause, _train_lengths(clause, evidence)) for clause in claim.clauses]
    verdicts = []
    for length in sorted({length for _, lengths in about for length in lengths}):
        its = [clause for clause, lengths in about if length in lengths]
        findings = tuple(_finding(clause, length, evidence) for clause in its)
        verdicts.append(Verdict(claim.says, length, claim.published, findings))
    if verdicts:
        return verdicts
    nothing = tuple(_unmeasured(clause, ABOUT_NONE) for clause in claim.clauses)
    return [Verdict(claim.says, None, claim.published, nothing)]


def _train_lengths(clause: Clause, evidence: Evidence) -> list[int]:
    """Every L that a clause names, or that runs of its left side were trained at."""
    configs = [run.config for run in evidence.runs]
    return clause.trained.among(
        config["train_length"] for config in configs if matches(config, clause.left.of)
    )


def _finding(clause: Clause, train_length: int, evidence: Evidence) -> Finding:
    try:
        pairs = pairs_of(clause, train_length, evidence)
    except Lacking as lack:
        return _unmeasured(clause, str(lack))
    if not pairs.seeds:
        return _unmeasured(clause, pairs.lack)
    quantity = clause.left.quantity
    differences = [a - b for a, b in zip(pairs.left, pairs.right, strict=True)]
    found = estimate(differences, clause.confidence)
    finding = replace(
        _unmeasured(clause, pairs.lack),
        seeds=pairs.seeds,
        left=quantity.shown(fmean(pairs.left)),
        right=quantity.shown(fmean(pairs.right)),
        difference=_told(found, quantity),
    )
    if pairs.lack or found.low is None or found.high is None:
        return finding
    margin = math.log1p(clause.margin) if quantity.ratio else clause.margin
    outcome = clause.comparison.outcome(found.low, found.high, margin)
    return replace(finding, outcome=outcome, why=ACROSS if outcome == "undecided" else None)


def _unmeasured(clause: Clause, why: str | None) -> Finding:
    return Finding(
        says=clause_text(clause),
        outcome="undecided",
        unit=clause.left.quantity.unit,
        ratio=clause.left.quantity.ratio,
        margin=clause.margin,
        confidence=clause.confidence,
        why=why,
    )


def _told(found: Estimate, quantity: Quantity) -> Estimate:
    """An estimate of differences as they are told; the deviation stays as it was compared."""
    ends = (None if end is None else quantity.difference(end) for end in (found.low, found.high))
    return Estimate(quantity.difference(found.mean), found.deviation, *ends)
