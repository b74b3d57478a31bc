"""The two sides of a clause, paired by seed.

With the same seed, every encoding is trained on the same tokens in the same order and scored on the
same tokens, so the effect of the seed cancels in the difference of the two sides.
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
    """A clause cannot be judged; the message has the reason and often a command that helps."""


@dataclass(frozen=True)
class Sample:
    """One run's number, as returned by `Quantity.read`, and the evaluation row it comes from."""

    run: Run
    number: float
    row: Mapping[str, Any] | None


@dataclass(frozen=True)
class Pairs:
    """Both sides' numbers by seed; `missing` is the reason if there are too few seeds."""

    seeds: tuple[int, ...]
    left: tuple[float, ...]
    right: tuple[float, ...]
    missing: str | None


def paired_samples(clause: Clause, train_length: int, experiment: Experiment) -> Pairs:
    """Return the numbers of both sides for every seed that has both.

    Raises MissingData if a side has no runs or the sides are not comparable.
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
    # The command adds the fewest new seeds that allow an interval.
    unused = [seed for seed in range(1, 2 * MIN_SEEDS + 1) if seed not in complete]
    seeds = sorted([*complete, *unused[: max(0, MIN_SEEDS - len(complete))]])
    command = _train(experiment.command, {"seed": seeds})
    missing.append(
        f"both sides have {len(complete)} of the {MIN_SEEDS} required seeds; `{command}`"
    )
    return Pairs(
        seeds=tuple(complete),
        left=tuple(samples[0].number for samples in complete.values()),
        right=tuple(_right_number(clause, samples, train_length) for samples in complete.values()),
        missing=missing[0] if len(complete) < MIN_SEEDS else None,
    )


def _runs_by_seed(value: Value, train_length: int, experiment: Experiment) -> dict[int, Run]:
    """Return the runs of a value by seed.

    Raises MissingData if there are none or if several have the same seed.
    """
    trained = value.train_length.tokens(train_length)
    runs = [
        run
        for run in experiment.runs
        if run.train_length == trained and run.matches(value.selector)
    ]
    if not runs:
        seeds = sorted({run.seed for run in experiment.runs})
        overrides = {**value.selector, "train_length": trained, "seed": seeds}
        command = _train(experiment.command, overrides)
        raise MissingData(f"no run for {value}: `{command}`")
    by_seed = {run.seed: run for run in runs}
    if len(by_seed) < len(runs):
        names = ", ".join(run.name for run in runs)
        raise MissingData(
            f"{value}: several runs have the same seed ({names}); add a setting that tells them"
            " apart to the claim"
        )
    return by_seed


def _longest_length(sides: Sequence[tuple[Value, Mapping[int, Run]]]) -> int | None:
    """Return the longest length at which all evaluated runs of both sides were evaluated."""
    lengths = [
        {row["length"] for row in run.select_rows(value.row_keys)}
        for value, by_seed in sides
        for run in by_seed.values()
        if run.rows and value.quantity.source != "timing"
    ]
    return max(set.intersection(*lengths), default=None) if lengths else None


def _evaluation_length(value: Value, train_length: int, longest: int | None) -> int | None:
    """Return the evaluation length of a value in tokens, or None if it has none."""
    if isinstance(value.length, Length):
        return value.length.tokens(train_length)
    return longest if value.length == LONGEST else None


def _sample(value: Value, run: Run, length: int | None, experiment: Experiment) -> Sample:
    """Return a run's number at an evaluation length; raises MissingData if it was not measured."""
    quantity = value.quantity
    if not run.rows or (quantity.source == "timing" and not run.timing):
        raise MissingData(f"{run.name} is not finished: `{experiment.command}`")
    if quantity.source == "timing":
        return Sample(run, quantity.read(run.timing), None)
    rows = [row for row in run.select_rows(value.row_keys) if length in (None, row["length"])]
    if not rows:
        command = _evaluate(f"{experiment.folder}/{run.name}", value, length)
        raise MissingData(
            f"{run.name} has no such evaluation: run `{command}` for it and for the other seeds"
        )
    if quantity.source == "rows":
        return Sample(run, quantity.read(rows), rows[0])
    if len(rows) > 1:
        raise MissingData(f"{run.name} has several matching rows; add the stride to the claim")
    return Sample(run, quantity.read(rows[0]), rows[0])


def _check_same_tokens(samples: Sequence[Sample]) -> None:
    """Raise MissingData if the samples differ in their corpus or in the tokens scored.

    Two lengths of the same run may score different tokens, because some protocols score only the
    end of each window, but not if an evaluation budget ran out at one of them.
    """
    if len(samples) < 2:
        return
    left, right = samples
    if left.run is not right.run:
        a, b = (sample.run.config["frozen"]["fingerprint"][:8] for sample in samples)
        if a != b:
            raise MissingData(f"the two sides were trained on different data ({a} and {b})")
    if left.row is None or right.row is None:
        return
    complete = not (_budget_ran_out(left.row) or _budget_ran_out(right.row))
    tokens_may_differ = left.run is right.run and complete
    for key in CORPUS_KEYS if tokens_may_differ else (*CORPUS_KEYS, *TOKEN_KEYS):
        a, b = left.row.get(key), right.row.get(key)
        if a != b:
            raise MissingData(f"the two sides were scored on different tokens ({key} {a} and {b})")


def _budget_ran_out(row: Mapping[str, Any]) -> bool:
    return row["count"] != row.get("full_count", row["count"])


def _right_number(clause: Clause, samples: Sequence[Sample], train_length: int) -> float:
    right, as_ratio = clause.right, clause.left.quantity.compared_as_ratio
    if isinstance(right, Value):
        number = samples[1].number
        return number + math.log(right.times) if as_ratio else number * right.times
    if isinstance(right, Length):
        return float(right.tokens(train_length))
    return math.log(right) if as_ratio else right


def _train(command: str, overrides: Mapping[str, Any]) -> str:
    """Return the sweep's command with `overrides` replaced or added; `seed` is a list."""
    words = shlex.split(command) or ["posenc", "train"]
    kept = [word for word in words if word.partition("=")[0] not in overrides]
    settings = {**overrides, "seed": ",".join(map(str, overrides["seed"]))}
    return shlex.join([*kept, *(f"{key}={value}" for key, value in settings.items())])


def _evaluate(run: str, value: Value, length: int | None) -> str:
    """Return the command that evaluates the run directory `run` as a value requires."""
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
