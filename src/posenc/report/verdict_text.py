"""Verdicts as text: counts of outcomes, numbers, and the premises that are not met."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from posenc.config.errors import plural
from posenc.report.judge import ClauseVerdict, Verdict
from posenc.report.outcome import Outcome, combine
from posenc.report.scale import Scale, format_number

OUTCOME_TEXTS: dict[Outcome, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "undecided": ("undecided", "undecided"),
    "not measured": ("not measured", "not measured"),
    "too few seeds": ("with too few seeds", "with too few seeds"),
    "not comparable": ("not comparable", "not comparable"),
    "premise not met": ("with a premise not met", "with a premise not met"),
}
"""Outcome -> its singular and plural texts, which follow a count."""


def claim_outcomes(verdicts: Sequence[Verdict]) -> list[tuple[Outcome, Sequence[Verdict]]]:
    """Return the outcome of each claim over all its training lengths, with its verdicts."""
    groups = (list(group) for _, group in groupby(verdicts, key=lambda v: id(v.claim)))
    return [(combine([verdict.outcome for verdict in group]), group) for group in groups]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return counts of claims such as `3 hold, 2 fail (1 at some training lengths only)`.

    A claim judged at several training lengths counts once: it fails if it fails at any of them and
    holds if it holds at all of them. The text in parentheses counts the claims whose outcome is not
    the same at all training lengths.
    """
    counts: Counter[Outcome] = Counter()
    mixed: Counter[Outcome] = Counter()
    for outcome, group in claim_outcomes(verdicts):
        counts[outcome] += 1
        mixed[outcome] += len({verdict.outcome for verdict in group}) > 1
    texts = []
    for outcome, (for_one, for_several) in OUTCOME_TEXTS.items():
        if count := counts[outcome]:
            note = f" ({mixed[outcome]} at some training lengths only)" if mixed[outcome] else ""
            texts.append(f"{count} {for_one if count == 1 else for_several}{note}")
    return ", ".join(texts)


def number_texts(judged: ClauseVerdict | None) -> tuple[str, str, str]:
    """Return left, right, and the difference with its interval; empty if not measured."""
    if judged is None or judged.left is None or judged.right is None or judged.difference is None:
        return "", "", ""
    difference, scale = judged.difference, judged.clause.scale
    text = _difference_text(difference.mean, scale)
    if difference.low is not None and difference.high is not None:
        low, high = (_difference_text(end, scale) for end in (difference.low, difference.high))
        text += f" ({low} to {high})"
    return _value_text(judged.left, scale), _value_text(judged.right, scale), text


def comparison_text(judged: ClauseVerdict | None) -> str:
    """Return both sides, their difference and the number of seeds; empty if not measured."""
    left, right, difference = number_texts(judged)
    if judged is None or not difference:
        return ""
    seeds = len(judged.seeds)
    return f"{left} vs. {right}: {difference}, {plural(seeds, 'seed')}"


def reasons(verdict: Verdict, judged: ClauseVerdict | None) -> list[str]:
    """Return the reasons why a claim or one of its clauses neither holds nor fails."""
    texts = []
    for premise in verdict.unmet:
        where = "" if premise.train_length is None else f" at L = {premise.train_length}"
        texts.append(f"premise “{premise.claim.statement}”{where}: {_first_difference(premise)}")
    return [*texts, *([judged.reason] if judged and judged.reason else [])]


def _first_difference(premise: Verdict) -> str:
    """Return the outcome of a premise, and the difference in its first clause with this outcome."""
    judged = next(judged for judged in premise.clauses if judged.outcome == premise.outcome)
    difference = number_texts(judged)[2].partition(" (")[0]
    return f"{premise.outcome} ({difference})" if difference else premise.outcome


def _value_text(value: float, scale: Scale) -> str:
    if scale.unit == "tokens":
        return f"{value:.1f}".removesuffix(".0")
    if scale.kind == "change":
        return f"{100 * value:+.2f}%"
    return f"{value:.{scale.digits}f}" if abs(value) < 10 else format_number(value)


def _difference_text(value: float, scale: Scale) -> str:
    if scale.is_relative:
        return f"{100 * value:+.2f}%"
    if scale.unit == "tokens":
        return f"{value:+.1f}".removesuffix(".0")
    return f"{value:+.{scale.digits}f}"
