"""The runs of a value, the number that each has, and whether two may be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posenc.claims.evidence import Evidence, Row, Run
from posenc.claims.grammar import Value
from posenc.claims.lengths import LONGEST, Length
from posenc.claims.remedies import such_rows, such_runs
from posenc.claims.selection import matches, rows_of
from posenc.claims.words import value_text

CORPUS = ("data", "split")
TOKENS = ("count", "tokens_hash")


class Lacking(Exception):
    """What a claim needs is not there; the message says what, and which command makes it."""


@dataclass(frozen=True)
class Sample:
    """One run's number on the scale of comparison, and the evaluation row it comes from."""

    run: Run
    number: float
    row: Row | None


def runs_of(value: Value, train_length: int, evidence: Evidence) -> dict[int, Run]:
    """The runs of a value by seed; Lacking where there are none, or several of one seed."""
    trained = value.train_length.at(train_length)
    found = [
        run
        for run in evidence.runs
        if run.config["train_length"] == trained and matches(run.config, value.of)
    ]
    told = value_text(value)
    if not found:
        raise Lacking(f"no run for {told}: `{such_runs(evidence, value, trained)}`")
    by_seed = {run.config["seed"]: run for run in found}
    if len(by_seed) < len(found):
        names = ", ".join(run.name for run in found)
        raise Lacking(
            f"{told} is several runs of one seed ({names}); name in the claim what tells them apart"
        )
    return by_seed


def longest_of(sides: Sequence[tuple[Value, Mapping[int, Run]]]) -> int | None:
    """The longest length that every measured run of all sides was read at."""
    lengths = [
        {row["length"] for row in rows_of(value, run)}
        for value, by_seed in sides
        for run in by_seed.values()
        if run.rows and value.quantity.source != "timing"
    ]
    return max(set.intersection(*lengths), default=None) if lengths else None


def length_of(value: Value, train_length: int, longest: int | None) -> int | None:
    """The evaluation length in tokens at which a value is read, if it is read at one."""
    if isinstance(value.length, Length):
        return value.length.at(train_length)
    return longest if value.length == LONGEST else None


def sample_of(value: Value, run: Run, length: int | None, evidence: Evidence) -> Sample:
    """A run's number at an evaluation length; Lacking where it was not measured."""
    quantity = value.quantity
    if not run.rows or (quantity.source == "timing" and not run.timing):
        raise Lacking(f"{run.name} is not finished: `{evidence.command}`")
    if quantity.source == "timing":
        return Sample(run, quantity.read(run.timing), None)
    rows = [row for row in rows_of(value, run) if length in (None, row["length"])]
    if not rows:
        raise Lacking(
            f"{run.name} was not evaluated so: `{such_rows(evidence, run, value, length)}`,"
            " and its like for the other seeds"
        )
    if quantity.source == "rows":
        return Sample(run, quantity.read(rows), rows[0])
    if len(rows) > 1:
        raise Lacking(f"{run.name} has several such rows; name the stride in the claim")
    return Sample(run, quantity.read(rows[0]), rows[0])


def refuse_other_streams(samples: Sequence[Sample]) -> None:
    """Lacking where samples are not of one corpus, or not of the same scored tokens.

    Two lengths of one run may score other tokens, as where only the end of a window counts, but
    not where a budget cut one of them short.
    """
    if len(samples) < 2:
        return
    left, right = samples
    if left.run is not right.run:
        one, other = (sample.run.config["frozen"]["fingerprint"][:8] for sample in samples)
        if one != other:
            raise Lacking(f"the two sides were trained on other data ({one} and {other})")
    if left.row is None or right.row is None:
        return
    lengths = left.run is right.run and not (_cut_short(left.row) or _cut_short(right.row))
    for key in CORPUS if lengths else (*CORPUS, *TOKENS):
        a, b = left.row.get(key), right.row.get(key)
        if a != b:
            raise Lacking(f"the two sides were scored on other tokens ({key} {a} and {b})")


def _cut_short(row: Row) -> bool:
    return row["count"] != row.get("full_count", row["count"])
