"""Verdicts on claims as text and as tables, for files, the HTML report and the terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from posenc.config.errors import plural
from posenc.report.confidence import MIN_SEEDS
from posenc.report.judge import ClauseVerdict, Verdict, Verdicts
from posenc.report.outcome import Outcome, combine
from posenc.report.scale import Scale, format_number
from posenc.report.table import Cell, CellStyle, Column, Table, records_csv

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
OUTCOME_STYLES: dict[Outcome, CellStyle] = {"holds": "good", "fails": "bad"}
COLUMNS = (Column("verdict", align="left"), Column("L"), Column("claim", align="left", wrap=True))
NUMBERS_NOTE = (
    "Left and right are means over seeds: geometric means for perplexity, speed, memory and their"
    " relative changes, arithmetic means for other quantities. Differences are paired by seed and"
    " have a Student's t interval (95% unless the claim says otherwise). A claim holds if the whole"
    " interval is on the claimed side of the margin, fails if it is on the other side, and is"
    f" undecided if the interval includes the margin. Fewer than {MIN_SEEDS} seeds are too few for"
    " a verdict. `equal` is tested by two one-sided tests (TOST), by default at 5% each: it holds"
    " if the interval, which is then a 90% interval, lies between the margins."
)
PREMISES_NOTE = (
    "A claim is judged only if the premises hold at the training lengths of its runs; otherwise its"
    " premise is not met, and it neither holds nor fails."
)


def claim_outcomes(verdicts: Sequence[Verdict]) -> list[tuple[Outcome, Sequence[Verdict]]]:
    """Return the outcome of each claim over all its training lengths, with its verdicts."""
    groups = (list(group) for _, group in groupby(verdicts, key=lambda v: id(v.claim)))
    return [(combine([verdict.outcome for verdict in group]), group) for group in groups]


def affected_lengths(outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    """Return `at L = 512, 1024`, the training lengths with this outcome; "" if all have it."""
    lengths = [str(v.train_length) for v in verdicts if v.outcome == outcome]
    return f"at L = {', '.join(lengths)}" if len(lengths) < len(verdicts) else ""


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return counts of claims such as `3 hold, 2 fail (1 at some training lengths only)`.

    A claim judged at several training lengths counts once: it fails if it fails at any of them and
    holds if it holds at all of them. The number in parentheses counts the claims whose outcome
    differs between training lengths.
    """
    counts: Counter[Outcome] = Counter()
    mixed: Counter[Outcome] = Counter()
    for outcome, group in claim_outcomes(verdicts):
        counts[outcome] += 1
        mixed[outcome] += len({verdict.outcome for verdict in group}) > 1
    texts = []
    for outcome, (singular_text, plural_text) in OUTCOME_TEXTS.items():
        if count := counts[outcome]:
            note = f" ({mixed[outcome]} at some training lengths only)" if mixed[outcome] else ""
            texts.append(f"{count} {singular_text if count == 1 else plural_text}{note}")
    return ", ".join(texts)


def number_texts(result: ClauseVerdict | None) -> tuple[str, str, str]:
    """Return left, right, and the difference with its interval; empty strings if not measured."""
    if result is None or result.left is None or result.right is None or result.difference is None:
        return "", "", ""
    difference, scale = result.difference, result.clause.scale
    text = _difference_text(difference.mean, scale)
    if difference.low is not None and difference.high is not None:
        low, high = (_difference_text(x, scale) for x in (difference.low, difference.high))
        text += f" ({low} to {high})"
    return _value_text(result.left, scale), _value_text(result.right, scale), text


def reasons(verdict: Verdict, result: ClauseVerdict | None) -> list[str]:
    """Return the reasons why a claim or one of its clauses neither holds nor fails."""
    texts = []
    for premise in verdict.unmet:
        where = "" if premise.train_length is None else f" at L = {premise.train_length}"
        texts.append(f"premise “{premise.claim.statement}”{where}: {_describe_premise(premise)}")
    return [*texts, *([result.reason] if result and result.reason else [])]


def _describe_premise(premise: Verdict) -> str:
    """Return the outcome of a premise, and the difference in its first clause with this outcome."""
    result = next(result for result in premise.clauses if result.outcome == premise.outcome)
    difference = number_texts(result)[2].partition(" (")[0]
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


@dataclass(frozen=True)
class _Row:
    """A row for a claim, or for one clause of a claim that has several.

    `result` is the verdict on the clause; None in the row of a claim with several clauses.
    """

    outcome: Outcome
    train_length: int | str | None
    text: str
    style: CellStyle
    result: ClauseVerdict | None
    reasons: Sequence[str] = ()
    published: str | None = None

    @property
    def first_cells(self) -> list[Cell]:
        """The verdict and the training length."""
        return [
            Cell(self.outcome, style=OUTCOME_STYLES.get(self.outcome, "undecided")),
            Cell(self.train_length),
        ]

    @property
    def comparison(self) -> list[str]:
        """The clause as text, if `text` is the statement of its claim."""
        return [str(self.result.clause)] if self.result and self.style == "bold" else []


def verdict_tables(verdicts: Verdicts) -> list[Table]:
    """Return a table of the premises and a table of the claims, omitting empty ones.

    The note on the numbers is below the last table.
    """
    tables = []
    if verdicts.premises:
        notes = [PREMISES_NOTE] if verdicts.claims else [PREMISES_NOTE, NUMBERS_NOTE]
        tables.append(_verdict_table(verdicts.premises, "Premises", notes))
    if verdicts.claims:
        tables.append(_verdict_table(verdicts.claims, "Claims", [NUMBERS_NOTE]))
    return tables


def _verdict_table(verdicts: Sequence[Verdict], title: str, notes: Sequence[str]) -> Table:
    """Return a table with a row for each verdict, and for each clause if there are several."""
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
        text = Cell(row.text, style=row.style, details=[*row.comparison, *row.reasons])
        numbers = number_texts(row.result)
        seeds = len(row.result.seeds) if row.result else ""
        rows.append([*row.first_cells, text, *numbers, seeds, row.published or ""])
    return Table(title, columns, rows, notes)


def terminal_table(verdicts: Sequence[Verdict]) -> Table:
    """Return a narrow table with the numbers and the reason below each claim."""
    rows = []
    for row in _rows(verdicts):
        left, right, difference = number_texts(row.result)
        numbers: list[str] = []
        if row.result and difference:
            seeds = plural(len(row.result.seeds), "seed")
            numbers = [f"{left} vs. {right}: {difference}, {seeds}"]
        published = [f"published: {row.published}"] if row.published else []
        details = [*numbers, *row.reasons, *row.comparison, *published]
        rows.append([*row.first_cells, Cell(row.text, style=row.style, details=details)])
    return Table("", COLUMNS, rows)


def verdicts_csv(verdicts: Verdicts) -> str:
    """Return CSV with a row of unrounded numbers for each clause of each premise and claim."""
    kinds = {"premise": verdicts.premises, "claim": verdicts.claims}
    return records_csv(
        [
            _record(kind, verdict, result)
            for kind, items in kinds.items()
            for verdict in items
            for result in verdict.clauses
        ]
    )


def _record(kind: str, verdict: Verdict, result: ClauseVerdict) -> dict[str, object]:
    clause = result.clause
    return {
        "kind": kind,
        "claim": verdict.claim.statement,
        "verdict": verdict.outcome,
        "train_length": verdict.train_length,
        "comparison": str(clause),
        "outcome": result.outcome,
        "left": result.left,
        "right": result.right,
        "unit": clause.scale.unit,
        "difference": result.difference and result.difference.mean,
        "low": result.difference and result.difference.low,
        "high": result.difference and result.difference.high,
        "scale": "ratio - 1" if clause.scale.is_relative else "difference",
        "margin": clause.margin,
        "confidence": clause.interval_confidence,
        "seeds": " ".join(map(str, result.seeds)),
        "published": verdict.claim.published,
        "reason": "; ".join(reasons(verdict, result)) or None,
    }


def _rows(verdicts: Sequence[Verdict]) -> Iterator[_Row]:
    for verdict in verdicts:
        claim, results = verdict.claim, verdict.clauses
        only_result = results[0] if len(results) == 1 else None
        same_reason = len({result.reason for result in results}) == 1
        yield _Row(
            verdict.outcome,
            verdict.train_length,
            claim.statement,
            "bold",
            only_result,
            reasons=reasons(verdict, results[0] if same_reason else None),
            published=claim.published,
        )
        for result in results if only_result is None else ():
            reason = [result.reason] if result.reason and not same_reason else []
            yield _Row(result.outcome, "", str(result.clause), "indented", result, reason)
