"""Verdicts made into text once, whatever they are then written as."""

from collections.abc import Sequence
from dataclasses import dataclass

from posenc.claims.comparisons import Outcome
from posenc.claims.verdict import Finding, Verdict
from posenc.report.tables import number_text

SIGNS: dict[Outcome, str] = {"holds": "✓", "fails": "✗", "undecided": "?"}


@dataclass(frozen=True)
class Line:
    """A claim, or `part` of one: a comparison of several that it is made of.

    `outcome` is holds, fails or undecided, `length` the training length, `difference` has its
    interval; `notes` are what was compared and what is lacking.
    """

    outcome: Outcome
    length: str
    says: str
    published: str
    left: str = ""
    right: str = ""
    difference: str = ""
    seeds: str = ""
    notes: tuple[str, ...] = ()
    part: bool = False


def lines_of(verdicts: Sequence[Verdict]) -> list[Line]:
    """A line for each verdict, and one more for each comparison where there are several."""
    lines = []
    for verdict in verdicts:
        length = "" if verdict.train_length is None else str(verdict.train_length)
        whole = (verdict.outcome, length, verdict.says, verdict.published or "")
        if len(verdict.findings) == 1:
            (finding,) = verdict.findings
            lines.append(Line(*whole, *_numbers(finding), (finding.says, *_lacking(finding))))
            continue
        lines.append(Line(*whole))
        for finding in verdict.findings:
            part = (finding.outcome, length, finding.says, "")
            lines.append(Line(*part, *_numbers(finding), _lacking(finding), part=True))
    return lines


def summary(verdicts: Sequence[Verdict]) -> str:
    """As `3 hold, 1 fails, 2 undecided`, a claim counted once for each training length."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return ", ".join(f"{outcomes.count(word)} {word}" for word in SIGNS if word in outcomes)


def numbers_text(line: Line) -> str:
    """The two sides, their difference with its interval, and how many seeds it rests on."""
    seeds = f"{line.seeds} seed" + ("" if line.seeds == "1" else "s")
    return f"{line.left} against {line.right}: {line.difference}, {seeds}"


def _numbers(finding: Finding) -> tuple[str, str, str, str]:
    """Left, right, their difference with its interval, and the number of seeds."""
    difference, seeds = finding.difference, str(len(finding.seeds))
    if finding.left is None or finding.right is None or difference is None:
        return "", "", "", seeds
    told = _change(difference.mean, finding)
    if difference.low is not None and difference.high is not None:
        ends = (_change(end, finding) for end in (difference.low, difference.high))
        told += f" ({' to '.join(ends)})"
    left, right = (_number(side, finding.unit) for side in (finding.left, finding.right))
    return left, right, told, seeds


def _lacking(finding: Finding) -> tuple[str, ...]:
    return (finding.why,) if finding.why else ()


def _number(value: float, unit: str) -> str:
    if unit == "tokens":
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.3f}" if abs(value) < 10 else number_text(value)


def _change(value: float, finding: Finding) -> str:
    if finding.ratio:
        return f"{100 * value:+.2f}%"
    return f"{value:+.1f}".removesuffix(".0") if finding.unit == "tokens" else f"{value:+.3f}"
