"""Verdicts on claims as tables: one for files and the page, a narrower one for the terminal."""

from collections import Counter
from collections.abc import Sequence

from posenc.report.comparisons import Outcome
from posenc.report.judge import ClauseVerdict, Verdict
from posenc.report.result_tables import number_text
from posenc.report.table import Cell, Column, Table, Tone, csv_text

PLURALS: dict[Outcome, str] = {"holds": "hold", "fails": "fail", "undecided": "undecided"}
TONES: dict[Outcome, Tone] = {"holds": "good", "fails": "bad", "undecided": "open"}
CSV_COLUMNS = (
    *("claim", "verdict", "train_length", "comparison", "outcome", "left", "right", "unit"),
    *("difference", "low", "high", "scale", "margin", "confidence", "seeds", "published"),
    "reason",
)
NOTES = (
    "Left and right are means over seeds, geometric ones for ratios. Each difference is taken seed"
    " by seed and has Student's t interval. A claim holds where the whole interval is on the"
    " claimed side of the margin, fails where it is on the other side, and is undecided where it"
    " includes the margin or there are fewer than three seeds.",
)
Numbers = tuple[str, str, str]  # left, right, difference with its interval


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the counts as `3 hold, 1 fails`, a claim counted once for each training length."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    known = [(counts[outcome], outcome) for outcome in PLURALS if counts[outcome]]
    return ", ".join(f"{n} {word if n == 1 else PLURALS[word]}" for n, word in known)


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return a row for each verdict, and one more for each clause where there are several."""
    columns = [
        Column("verdict", align="left"),
        Column("L"),
        Column("claim", align="left", wrap=True),
        Column("left"),
        Column("right"),
        Column("difference"),
        Column("seeds"),
        Column("published", align="left", wrap=True),
    ]
    rows: list[list[Cell | str | float | None]] = []
    for verdict in verdicts:
        claim = [_outcome(verdict.outcome), verdict.train_length]
        published = verdict.published or ""
        if len(verdict.clauses) == 1:
            (clause,) = verdict.clauses
            details = [clause.text, *([clause.reason] if clause.reason else [])]
            statement = Cell(verdict.statement, tone="strong", details=details)
            rows.append([*claim, statement, *_numbers(clause), len(clause.seeds), published])
            continue
        statement = Cell(verdict.statement, tone="strong")
        rows.append([*claim, statement, "", "", "", "", published])
        for clause in verdict.clauses:
            details = [clause.reason] if clause.reason else []
            part = [_outcome(clause.outcome), "", Cell(clause.text, tone="part", details=details)]
            rows.append([*part, *_numbers(clause), len(clause.seeds), ""])
    return Table("", columns, rows, NOTES)


def terminal_table(verdicts: Sequence[Verdict]) -> Table:
    """Return verdict, L and claim, with the numbers and the reason below the claim."""
    columns = [Column("verdict", align="left"), Column("L")]
    columns.append(Column("claim", align="left", wrap=True))
    rows: list[list[Cell | str | float | None]] = []
    for verdict in verdicts:
        published = [f"published: {verdict.published}"] if verdict.published else []
        claim = [_outcome(verdict.outcome), verdict.train_length]
        if len(verdict.clauses) == 1:
            (clause,) = verdict.clauses
            details = [*_lines(clause), clause.text, *published]
            rows.append([*claim, Cell(verdict.statement, tone="strong", details=details)])
            continue
        rows.append([*claim, Cell(verdict.statement, tone="strong", details=published)])
        for clause in verdict.clauses:
            rows.append(
                [
                    _outcome(clause.outcome),
                    "",
                    Cell(clause.text, tone="part", details=_lines(clause)),
                ]
            )
    return Table("", columns, rows)


def verdicts_csv(verdicts: Sequence[Verdict]) -> str:
    """Return a line for each clause of each claim, unrounded."""
    lines: list[Sequence[object]] = [CSV_COLUMNS]
    for verdict in verdicts:
        for clause in verdict.clauses:
            interval = clause.difference
            ends = (interval.mean, interval.low, interval.high) if interval else (None,) * 3
            lines.append(
                (
                    *(verdict.statement, verdict.outcome, verdict.train_length),
                    *(clause.text, clause.outcome, clause.left, clause.right, clause.unit),
                    *(*ends, "ratio - 1" if clause.ratio else "difference"),
                    *(clause.margin, clause.confidence, " ".join(map(str, clause.seeds))),
                    *(verdict.published, clause.reason),
                )
            )
    return csv_text(lines)


def _outcome(outcome: Outcome) -> Cell:
    return Cell(outcome, tone=TONES[outcome])


def _numbers(clause: ClauseVerdict) -> Numbers:
    """Return left, right, and their difference with its interval; empty where not measured."""
    difference = clause.difference
    if clause.left is None or clause.right is None or difference is None:
        return "", "", ""
    text = _change(difference.mean, clause)
    if difference.low is not None and difference.high is not None:
        text += f" ({_change(difference.low, clause)} to {_change(difference.high, clause)})"
    return _number(clause.left, clause.unit), _number(clause.right, clause.unit), text


def _lines(clause: ClauseVerdict) -> list[str]:
    """Return the numbers of a clause in a line, and the reason why it is undecided."""
    left, right, difference = _numbers(clause)
    seeds = f"{len(clause.seeds)} seed" + ("" if len(clause.seeds) == 1 else "s")
    numbers = [f"{left} against {right}: {difference}, {seeds}"] if difference else []
    return [*numbers, *([clause.reason] if clause.reason else [])]


def _number(value: float, unit: str) -> str:
    if unit == "tokens":
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.3f}" if abs(value) < 10 else number_text(value)


def _change(value: float, clause: ClauseVerdict) -> str:
    if clause.ratio:
        return f"{100 * value:+.2f}%"
    return f"{value:+.1f}".removesuffix(".0") if clause.unit == "tokens" else f"{value:+.3f}"
