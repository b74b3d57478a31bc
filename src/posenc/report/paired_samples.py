"""Both sides of a clause, paired by seed.

For one seed every encoding is trained on the same tokens in the same order and scored on the same
tokens, so that the effect of the seed on both sides cancels in their difference.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim import LONGEST, MIN_SEEDS, Clause, Length, Value
from posenc.report.experiment import Experiment, Run

CORPUS_KEYS = ("data", "split")
TOKEN_KEYS = ("count", "tokens_hash")


class MissingData(Exception):
    """A claim cannot be judged; the message has the reason and, where one helps, a command."""


@dataclass(frozen=True)
class Sample:
    """One run's number on the scale of comparison, and the evaluation row it comes from."""

    run: Run
    number: float
    row: Mapping[str, Any] | None


@dataclass(frozen=True)
class Pairs:
    """Numbers on the scale of comparison by seed; `missing` says why they are too few, if so."""

    seeds: tuple[int, ...]
    left: tuple[float, ...]
    right: tuple[float, ...]
    missing: str | None


def paired_samples(clause: Clause, train_length: int, experiment: Experiment) -> Pairs:
    """Return both sides for the seeds that have them.

    Raises MissingData where there is none, or where the sides are not comparable.
    """
    values = [side for side in (clause.left, clause.right) if isinstance(side, Value)]
    runs = [_runs_by_seed(value, train_length, experiment) for value in values]
    longest = _longest_length(list(zip(values, runs, strict=True)))
    lengths = [_evaluation_length(value, train_length, longest) for value in values]
    complete: dict[int, list[Sample]] = {}
    missing: list[str] = []
    for seed in sorted(set.intersection(*map(set, runs))):
        sides = zip(values, (by_seed[seed] for by_seed in runs), lengths, strict=True)
        try:
            samples = [_sample(*side, experiment) for side in sides]
        except MissingData as error:
            missing.append(str(error))
            continue
        _check_same_tokens(samples)
        complete[seed] = samples
    command = _train_more_seeds(experiment.command, list(complete))
    missing.append(f"{len(complete)} of {MIN_SEEDS} seeds that both sides need; `{command}`")
    return Pairs(
        seeds=tuple(complete),
        left=tuple(samples[0].number for samples in complete.values()),
        right=tuple(_right_number(clause, samples, train_length) for samples in complete.values()),
        missing=missing[0] if len(complete) < MIN_SEEDS else None,
    )


def _runs_by_seed(value: Value, train_length: int, experiment: Experiment) -> dict[int, Run]:
    """Return the runs of a value; MissingData where there are none, or several of one seed."""
    trained = value.train_length.tokens(train_length)
    runs = [
        run
        for run in experiment.runs
        if run.train_length == trained and run.matches(value.selector)
    ]
    if not runs:
        seeds = sorted({run.seed for run in experiment.runs})
        overrides = {**value.selector, "train_length": trained, "seed": _listed(seeds)}
        command = _train(experiment.command, overrides)
        raise MissingData(f"no run for {value}: `{command}`")
    by_seed = {run.seed: run for run in runs}
    if len(by_seed) < len(runs):
        names = ", ".join(run.name for run in runs)
        raise MissingData(
            f"{value}: several runs have the same seed ({names}); add the setting in which they"
            " differ to the claim"
        )
    return by_seed


def _longest_length(sides: Sequence[tuple[Value, Mapping[int, Run]]]) -> int | None:
    """Return the longest length at which every measured run of all sides was evaluated."""
    lengths = [
        {row["length"] for row in run.select_rows(value.row_keys)}
        for value, by_seed in sides
        for run in by_seed.values()
        if run.rows and value.quantity.source != "timing"
    ]
    return max(set.intersection(*lengths), default=None) if lengths else None


def _evaluation_length(value: Value, train_length: int, longest: int | None) -> int | None:
    """Return the evaluation length of a value in tokens, None for a value that has none."""
    if isinstance(value.length, Length):
        return value.length.tokens(train_length)
    return longest if value.length == LONGEST else None


def _sample(value: Value, run: Run, length: int | None, experiment: Experiment) -> Sample:
    """Return a run's number at an evaluation length; MissingData where it was not measured."""
    quantity = value.quantity
    if not run.rows or (quantity.source == "timing" and not run.timing):
        raise MissingData(f"{run.name} is not finished: `{experiment.command}`")
    if quantity.source == "timing":
        return Sample(run, quantity.read(run.timing), None)
    rows = [row for row in run.select_rows(value.row_keys) if length in (None, row["length"])]
    if not rows:
        command = _evaluate(f"{experiment.folder}/{run.name}", value, length)
        raise MissingData(
            f"{run.name} has no such evaluation: `{command}`, and likewise for the other seeds"
        )
    if quantity.source == "rows":
        return Sample(run, quantity.read(rows), rows[0])
    if len(rows) > 1:
        raise MissingData(f"{run.name} has several such rows; add the stride to the claim")
    return Sample(run, quantity.read(rows[0]), rows[0])


def _check_same_tokens(samples: Sequence[Sample]) -> None:
    """Raise MissingData where samples differ in corpus, or in the tokens that were scored.

    Two lengths of one run may score different tokens, as where only the end of a window counts,
    unless a budget cut one of them short.
    """
    if len(samples) < 2:
        return
    left, right = samples
    if left.run is not right.run:
        one, other = (sample.run.config["frozen"]["fingerprint"][:8] for sample in samples)
        if one != other:
            raise MissingData(f"the two sides were trained on different data ({one} and {other})")
    if left.row is None or right.row is None:
        return
    same_run = left.run is right.run and not (_cut_short(left.row) or _cut_short(right.row))
    for key in CORPUS_KEYS if same_run else (*CORPUS_KEYS, *TOKEN_KEYS):
        one, other = left.row.get(key), right.row.get(key)
        if one != other:
            raise MissingData(
                f"the two sides were scored on different tokens ({key} {one} and {other})"
            )


def _cut_short(row: Mapping[str, Any]) -> bool:
    return row["count"] != row.get("full_count", row["count"])


def _right_number(clause: Clause, samples: Sequence[Sample], train_length: int) -> float:
    right, ratio = clause.right, clause.left.quantity.ratio
    if isinstance(right, Value):
        number = samples[1].number
        return number + math.log(right.times) if ratio else number * right.times
    if isinstance(right, Length):
        return float(right.tokens(train_length))
    return math.log(right) if ratio else right


def _train_more_seeds(command: str, seeds: Sequence[int]) -> str:
    """Return the sweep's command with the fewest seeds that allow an interval, `seeds` included."""
    new = (seed for seed in range(1, MIN_SEEDS + len(seeds) + 1) if seed not in seeds)
    added = [next(new) for _ in range(MIN_SEEDS - len(seeds))]
    return _train(command, {"seed": _listed(sorted([*seeds, *added]))})


def _train(command: str, overrides: Mapping[str, Any]) -> str:
    """Return the sweep's command with some of its overrides replaced or added."""
    words = shlex.split(command) or ["posenc", "train"]
    kept = [word for word in words if word.partition("=")[0] not in overrides]
    return shlex.join([*kept, *(f"{key}={value}" for key, value in overrides.items())])


def _evaluate(run: str, value: Value, length: int | None) -> str:
    """Return the command that evaluates a run for a value."""
    protocol, swap = value.row_keys["protocol"], value.row_keys["swap"]
    settings = {
        "run": run,
        "evaluation.protocols": f"[{protocol}]",
        "evaluation.lengths": length and f"[{length}]",
        f"evaluation.{PROTOCOLS[protocol].parameter}": value.row_keys.get("stride"),
        "evaluation.split": value.row_keys.get("split"),
        "evaluation.swaps": swap and f"['{swap}']",
    }
    overrides = [f"{key}={setting}" for key, setting in settings.items() if setting is not None]
    return shlex.join(["posenc", "evaluate", *overrides])


def _listed(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))
