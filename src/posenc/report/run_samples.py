"""The measurement of a claim's value in one run, and commands that produce missing measurements."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posenc.config.overrides import to_override_value
from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim_sides import LONGEST, Length, Value
from posenc.report.experiment import Experiment, Run
from posenc.report.outcome import NoVerdictError
from posenc.runs.evaluation_rows import KEY_FIELDS, budget_ran_out
from posenc.runs.plan_file import is_withheld, join_command, quoted_command, with_overrides
from posenc.runs.row_types import Row


@dataclass(frozen=True)
class Sample:
    """A number measured for one run (see `Quantity.read`), and the evaluation row it comes from.

    `length` is the evaluation length in tokens; None for a quantity without one.
    """

    run: Run
    number: float
    row: Mapping[str, Any] | None
    length: int | None


def runs_by_seed(value: Value, train_length: int, experiment: Experiment) -> dict[int, Run]:
    """Return the runs of a value by seed.

    Raises NoVerdictError if there are none, if several have the same seed, or if they differ in
    settings other than the seed.
    """
    runs_train_length = value.train_length.num_tokens(train_length)
    runs = [
        run
        for run in experiment.runs
        if run.train_length == runs_train_length and run.matches(value.selector)
    ]
    if not runs:
        seeds = sorted({run.seed for run in experiment.runs})
        overrides = {**value.selector, "train_length": runs_train_length, "seed": seeds}
        command = train_command(experiment.command, overrides)
        raise NoVerdictError("not measured", f"no run for {value}; run {command}")
    by_seed = {run.seed: run for run in runs}
    if len(by_seed) < len(runs):
        names = ", ".join(run.name for run in runs)
        raise NoVerdictError(
            "not comparable",
            f"{value}: several runs have the same seed ({names}); in the claim, add a setting that"
            " distinguishes them",
        )
    if len(labels := sorted({run.label for run in runs})) > 1:
        raise NoVerdictError(
            "not comparable",
            f"{value}: runs of different seeds also differ in other settings ({'; '.join(labels)})",
        )
    return by_seed


def lengths_in_common(runs_by_value: Sequence[tuple[Value, Mapping[int, Run]]]) -> set[int]:
    """Return the evaluation lengths that all evaluated runs of a comparison have in common."""
    lengths = [
        {row["length"] for row in run.select_rows(value)}
        for value, by_seed in runs_by_value
        for run in by_seed.values()
        if run.rows and value.quantity.source != "timing"
    ]
    return set.intersection(*lengths) if lengths else set()


def evaluation_length(value: Value, train_length: int, longest: int | None) -> int | None:
    """Return the evaluation length of a value in tokens, or None if it has none."""
    if isinstance(value.length, Length):
        return value.length.num_tokens(train_length)
    return longest if value.length == LONGEST else None


def read_sample(
    value: Value, run: Run, length: int | None, common_lengths: set[int], experiment: Experiment
) -> Sample:
    """Return a value measured for a run, at one evaluation length or over all common lengths.

    Raises NoVerdictError if it was not measured, if several rows match, if `length` is below 1, or
    if it covers all lengths and an evaluation budget ran out at one of them.
    """
    quantity = value.quantity
    if not run.rows:
        command = train_command(experiment.command, {})
        raise NoVerdictError("not measured", f"{run.name} has not been evaluated; run {command}")
    if quantity.source == "timing" and not run.timing:
        raise NoVerdictError("not measured", f"{run.name} has no timing.jsonl")
    if quantity.source == "timing":
        return Sample(run, quantity.read(run.timing), None, None)
    rows = _matching_rows(value, run, length, experiment)
    if quantity.source == "rows":
        rows = [row for row in rows if row["length"] in common_lengths]
    if not rows or (value.length == LONGEST and length is None):
        raise NoVerdictError(
            "not measured", f"{value}: the runs have no evaluation length in common"
        )
    if len({row["length"] for row in rows}) < len(rows):
        names = [name for name in KEY_FIELDS if name != "length"]
        fields = [name for name in names if len({row.get(name) for row in rows}) > 1]
        raise NoVerdictError(
            "not comparable",
            f"{run.name} has several matching rows, which differ in {' and '.join(fields)}; select"
            " one of them",
        )
    if quantity.source == "rows":
        if any(map(budget_ran_out, rows)):
            raise NoVerdictError(
                "not comparable",
                f"{value}: because of an evaluation budget, {run.name} was scored on different"
                " tokens at each length",
            )
        return Sample(run, quantity.read(rows), rows[0], None)
    return Sample(run, quantity.read(rows[0]), rows[0], length)


def _matching_rows(value: Value, run: Run, length: int | None, experiment: Experiment) -> list[Row]:
    """Return the rows that a value selects, at `length` or, if it is None, at all lengths."""
    rows = [row for row in run.select_rows(value) if length in (None, row["length"])]
    if length is not None and length < 1:
        raise NoVerdictError(
            "not comparable", f"{run.name}: {value.length} is {length} tokens, but must be positive"
        )
    if not rows:
        command = evaluate_command(f"{experiment.folder}/{run.name}", run, value, length)
        raise NoVerdictError(
            "not measured",
            f"{run.name} has no matching evaluation row; run `{command}`, and"
            " do the same for the other seeds",
        )
    return rows


def train_command(command: str, overrides: Mapping[str, Any]) -> str:
    """Return `command` with `overrides` replaced or added, as text for a message.

    The value of "seed" is a list of seeds. `command` comes from a plan; the text refers to the plan
    if the command is not printed.
    """
    settings = {key: to_override_value(value, key) for key, value in overrides.items()}
    if "seed" in overrides:
        settings["seed"] = ",".join(map(str, overrides["seed"]))
    if is_withheld(command):
        changes = " ".join(f"{key}={value}" for key, value in settings.items())
        return f"the command in plan.json{f' with {changes}' if changes else ''}"
    return f"`{join_command(with_overrides(quoted_command(command) or 'posenc train', settings))}`"


def evaluate_command(path: str, run: Run, value: Value, length: int | None) -> str:
    """Return the command that evaluates a run, whose directory is `path`, for a value in a claim.

    With fixed_target, it also repeats the lengths that have been evaluated, because the targets
    depend on the longest length.
    """
    protocol, swap = value.row_keys["protocol"], value.row_keys["swap"]
    at_tokens = run.at_tokens(value.selector)
    parameter = None
    lengths = set() if length is None else {length}
    if protocol in PROTOCOLS:
        parameter = PROTOCOLS[protocol].parameter
        if length and PROTOCOLS[protocol].needs_longest_length:
            lengths |= {row["length"] for row in run.select_rows(value)}
    parameter_value = value.row_keys.get("stride") or run.config["evaluation"].get(parameter)
    settings = {
        "run": to_override_value(path, "run"),
        "data": value.row_keys.get("corpus"),
        "evaluation.protocols": f"[{protocol}]",
        "evaluation.lengths": to_override_value(sorted(lengths), "lengths") if lengths else None,
        f"evaluation.{parameter}": parameter_value if parameter else None,
        "evaluation.split": value.row_keys.get("split"),
        "evaluation.swaps": swap and f"['{swap}']",
        "evaluation.at_tokens": at_tokens and f"[{at_tokens}]",
    }
    overrides = [f"{key}={setting}" for key, setting in settings.items() if setting is not None]
    return shlex.join(["posenc", "evaluate", *overrides])
