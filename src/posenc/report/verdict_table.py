"""Verdicts on claims as tables: one for files and the page, a narrower one for the terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from posenc.report.claim import Outcome
from posenc.report.judge import ClauseVerdict, Verdict
from posenc.report.result_tables import number_text
from posenc.report.table import Cell, Column, Table, Tone, records_csv

PLURALS: dict[Outcome, str] = {"holds": "hold", "fails": "fail", "undecided": "undecided"}
TONES: dict[Outcome, Tone] = {"holds": "good", "fails": "bad", "undecided": "open"}
NOTES = (
    "Left and right are means over seeds: geometric means of perplexities, speeds and memory,"
    " arithmetic means of other quantities. Each difference is taken seed"
    " by seed and has Student's t interval. A claim holds where the whole interval is on the"
    " claimed side of the margin, fails where it is on the other side, and is undecided where it"
    " includes the margin or there are fewer than three seeds.",
)


@dataclass(frozen=True)
class _Row:
    """A row of either table: a claim, or one of its clauses where it has several."""

    outcome: Outcome
    train_length: int | str | None
    text: str
    tone: Tone
    clause: ClauseVerdict | None
    published: str | None = None

    @property
    def verdict(self) -> list[Cell]:
        return [Cell(self.outcome, tone=TONES[self.outcome]), Cell(self.train_length)]

    @property
    def comparison(self) -> list[str]:
        """The clause in words, where `text` is the statement of its claim."""
        return [str(self.clause.clause)] if self.clause and self.tone == "strong" else []

    @property
    def reason(self) -> list[str]:
        return [self.clause.reason] if self.clause and self.clause.reason else []


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
    rows = []
    for row in _rows(verdicts):
        text = Cell(row.text, tone=row.tone, details=[*row.comparison, *row.reason])
        seeds = len(row.clause.seeds) if row.clause else ""
        rows.append([*row.verdict, text, *_numbers(row.clause), seeds, row.published or ""])
    return Table("", columns, rows, NOTES)


def terminal_table(verdicts: Sequence[Verdict]) -> Table:
    """Return verdict, L and claim, with the numbers and the reason below the claim."""
    columns = [Column("verdict", align="left"), Column("L")]
    columns.append(Column("claim", align="left", wrap=True))
    rows = []
    for row in _rows(verdicts):
        left, right, difference = _numbers(row.clause)
        seeds = len(row.clause.seeds) if row.clause else 0
        count = f"{seeds} seed" + ("" if seeds == 1 else "s")
        numbers = [f"{left} against {right}: {difference}, {count}"] if difference else []
        published = [f"published: {row.published}"] if row.published else []
        details = [*numbers, *row.reason, *row.comparison, *published]
        rows.append([*row.verdict, Cell(row.text, tone=row.tone, details=details)])
    return Table("", columns, rows)


def verdicts_csv(verdicts: Sequence[Verdict]) -> str:
    """Return a line for each clause of each claim, unrounded."""
    return records_csv(
        [
            {
                "claim": verdict.claim.statement,
                "verdict": verdict.outcome,
                "train_length": verdict.train_length,
                "comparison": str(clause),
                "outcome": judged.outcome,
                "left": judged.left,
                "right": judged.right,
                "unit": clause.left.quantity.unit,
                "difference": judged.difference and judged.difference.mean,
                "low": judged.difference and judged.difference.low,
                "high": judged.difference and judged.difference.high,
                "scale": "ratio - 1" if clause.left.quantity.ratio else "difference",
                "margin": clause.margin,
                "confidence": clause.confidence,
                "seeds": " ".join(map(str, judged.seeds)),
                "published": verdict.claim.published,
                "reason": judged.reason,
            }
            for verdict in verdicts
            for judged in verdict.clauses
            for clause in [judged.clause]
        ]
    )


def _rows(verdicts: Sequence[Verdict]) -> Iterator[_Row]:
    for verdict in verdicts:
        claim, several = verdict.claim, len(verdict.clauses) > 1
        only = None if several else verdict.clauses[0]
        yield _Row(
            *(verdict.outcome, verdict.train_length, claim.statement, "strong", only),
            published=claim.published,
        )
        for clause in verdict.clauses if several else ():
            yield _Row(clause.outcome, "", str(clause.clause), "part", clause)


def _numbers(judged: ClauseVerdict | None) -> tuple[str, str, str]:
    """Return left, right, and their difference with its interval; empty where not measured."""
    if judged is None or judged.left is None or judged.right is None or judged.difference is None:
        return "", "", ""
    difference, unit = judged.difference, judged.clause.left.quantity.unit
    text = _change(difference.mean, judged)
    if difference.low is not None and difference.high is not None:
        text += f" ({_change(difference.low, judged)} to {_change(difference.high, judged)})"
    return _number(judged.left, unit), _number(judged.right, unit), text


def _number(value: float, unit: str) -> str:
    if unit == "tokens":
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.3f}" if abs(value) < 10 else number_text(value)


def _change(value: float, judged: ClauseVerdict) -> str:
    quantity = judged.clause.left.quantity
    if quantity.ratio:
        return f"{100 * value:+.2f}%"
    return f"{value:+.1f}".removesuffix(".0") if quantity.unit == "tokens" else f"{value:+.3f}"
