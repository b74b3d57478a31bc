"""Tables of verdicts on claims: one for files and the HTML report, one for the terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from posenc.report.claim import MIN_SEEDS, Outcome
from posenc.report.judge import ClauseVerdict, Verdict
from posenc.report.result_tables import number_text
from posenc.report.table import Cell, CellStyle, Column, Table, records_csv

PLURALS: dict[Outcome, str] = {"holds": "hold", "fails": "fail", "undecided": "undecided"}
OUTCOME_STYLES: dict[Outcome, CellStyle] = {
    "holds": "good",
    "fails": "bad",
    "undecided": "undecided",
}
COLUMNS = (Column("verdict", align="left"), Column("L"), Column("claim", align="left", wrap=True))
NOTE = (
    "Left and right are means over seeds: geometric means for perplexity, speed and memory,"
    " arithmetic means for other quantities. Differences are paired by seed and have a Student's t"
    " interval. A claim holds if the whole interval is on the claimed side of the margin, fails if"
    " it is on the other side, and is undecided if the interval includes the margin or there are"
    f" fewer than {MIN_SEEDS} seeds."
)


@dataclass(frozen=True)
class _Row:
    """A row of either table: a claim, or one clause of a claim that has several.

    `clause` is None for a claim with several clauses, which have rows of their own.
    """

    outcome: Outcome
    train_length: int | str | None
    text: str
    style: CellStyle
    clause: ClauseVerdict | None
    published: str | None = None

    @property
    def first_cells(self) -> list[Cell]:
        """The verdict and the training length."""
        return [Cell(self.outcome, style=OUTCOME_STYLES[self.outcome]), Cell(self.train_length)]

    @property
    def comparison(self) -> list[str]:
        """The clause as text, if `text` is the statement of its claim."""
        return [str(self.clause.clause)] if self.clause and self.style == "bold" else []

    @property
    def reason(self) -> list[str]:
        return [self.clause.reason] if self.clause and self.clause.reason else []


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return counts such as `3 hold, 1 fails`; a claim counts once per training length."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return ", ".join(
        f"{counts[outcome]} {outcome if counts[outcome] == 1 else plural}"
        for outcome, plural in PLURALS.items()
        if counts[outcome]
    )


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return a row for each verdict, and one for each clause of a claim that has several."""
    columns = [
        *COLUMNS,
        Column("left"),
        Column("right"),
        Column("difference"),
        Column("seeds"),
        Column("published", align="left", wrap=True),
    ]
    rows = []
    for row in _rows(verdicts):
        text = Cell(row.text, style=row.style, details=[*row.comparison, *row.reason])
        seeds = len(row.clause.seeds) if row.clause else ""
        rows.append([*row.first_cells, text, *_numbers(row.clause), seeds, row.published or ""])
    return Table("", columns, rows, [NOTE])


def terminal_table(verdicts: Sequence[Verdict]) -> Table:
    """Return a narrow table with the numbers and the reason below each claim."""
    rows = []
    for row in _rows(verdicts):
        left, right, difference = _numbers(row.clause)
        seeds = len(row.clause.seeds) if row.clause else 0
        count = f"{seeds} seed" + ("" if seeds == 1 else "s")
        numbers = [f"{left} vs. {right}: {difference}, {count}"] if difference else []
        published = [f"published: {row.published}"] if row.published else []
        details = [*numbers, *row.reason, *row.comparison, *published]
        rows.append([*row.first_cells, Cell(row.text, style=row.style, details=details)])
    return Table("", COLUMNS, rows)


def verdicts_csv(verdicts: Sequence[Verdict]) -> str:
    """Return a csv line with unrounded numbers for each clause of each claim."""
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
                "scale": "ratio - 1" if clause.left.quantity.compared_as_ratio else "difference",
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
        claim, clauses = verdict.claim, verdict.clauses
        only = clauses[0] if len(clauses) == 1 else None
        yield _Row(
            *(verdict.outcome, verdict.train_length, claim.statement, "bold", only),
            published=claim.published,
        )
        for clause in clauses if only is None else ():
            yield _Row(clause.outcome, "", str(clause.clause), "indented", clause)


def _numbers(judged: ClauseVerdict | None) -> tuple[str, str, str]:
    """Return left, right, and the difference with its interval; empty if not measured."""
    if judged is None or judged.left is None or judged.right is None or judged.difference is None:
        return "", "", ""
    difference, unit = judged.difference, judged.clause.left.quantity.unit
    text = _difference(difference.mean, judged)
    if difference.low is not None and difference.high is not None:
        low, high = (_difference(end, judged) for end in (difference.low, difference.high))
        text += f" ({low} to {high})"
    return _number(judged.left, unit), _number(judged.right, unit), text


def _number(value: float, unit: str) -> str:
    if unit == "tokens":
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.3f}" if abs(value) < 10 else number_text(value)


def _difference(value: float, judged: ClauseVerdict) -> str:
    quantity = judged.clause.left.quantity
    if quantity.compared_as_ratio:
        return f"{100 * value:+.2f}%"
    return f"{value:+.1f}".removesuffix(".0") if quantity.unit == "tokens" else f"{value:+.3f}"
