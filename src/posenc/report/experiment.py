"""Reads an experiment's folder: its runs, its plan, its premises and its claims."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from posenc.config.errors import (
    ConfigError,
    RunError,
    abbreviate,
    describe_path_error,
    did_you_mean,
    printable,
)
from posenc.config.paths import describe_other_results, experiment_command, replace_home
from posenc.config.settings import select
from posenc.config.values import canonical
from posenc.report.claim import Claim
from posenc.report.claim_parser import parse_claims
from posenc.report.claim_sides import Value
from posenc.report.published_curves import PublishedCurve, parse_published
from posenc.report.run_labels import natural_key, run_labels
from posenc.runs.evaluation_rows import read_evaluation, select_comparable
from posenc.runs.loss_arrays import BlockSums, row_blocks
from posenc.runs.plan_file import read_plan
from posenc.runs.row_types import Row
from posenc.runs.run_directory import STOPPED_EARLY, RunDirectory, SelectRuns, list_runs
from posenc.runs.status import Status

MACHINE_KEYS = ("device", "processor", "threads")
"""Keys of a run's status whose values affect speed and memory."""


@dataclass(frozen=True)
class Run:
    """One run: its configuration, status and results.

    `saved_rows` are its evaluation rows, in the order of evaluation.json; `rows` keeps one of
    them per measurement, and `comparable_rows` those that can be compared with other runs.
    `positions` and `block_arrays` are the arrays of loss_by_position.npz and loss_by_block.npz. All
    five are empty until training is done. `timing` has the lines of timing.jsonl, `metrics` the
    last logged value of each metric, and `ngrams` the losses of n-gram models that were trained on
    the run's training tokens.
    """

    name: str
    label: str
    config: dict[str, Any]
    status: Status
    rows: Sequence[Row]
    comparable_rows: Sequence[Row] = ()
    saved_rows: Sequence[Row] = ()
    timing: Sequence[Row] = ()
    positions: Mapping[str, np.ndarray] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    ngrams: Sequence[Row] = ()
    block_arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def encoding(self) -> str:
        return self.config["choices"]["encoding"]

    @property
    def train_length(self) -> int:
        return self.config["train_length"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def state(self) -> str:
        """The state, followed by the error if there is one."""
        error = self.status.error
        return f"{self.status.state}: {error}" if error else self.status.state

    def matches(self, selector: Mapping[str, Any]) -> bool:
        """Return whether the configuration has all values in `selector`.

        `tokens` may also be a number of training tokens at which the run was or will be evaluated.
        """
        return all(self._has(key, value) for key, value in selector.items())

    def at_tokens(self, selector: Mapping[str, Any]) -> int | None:
        """Return the `at_tokens` of rows that `selector` selects; None for the final weights."""
        tokens = selector.get("tokens")
        return None if tokens is None or tokens == self.config["tokens"] else tokens

    def training_tokens(self, row: Row) -> int:
        """Return a row's number of training tokens: its `at_tokens`, or else the run's `tokens`."""
        return row.get("at_tokens") or self.config["tokens"]

    def select_rows(self, value: Value) -> list[Row]:
        """Return the rows that a value of a claim selects, at all lengths.

        By default, these are the rows on the run's own data and configured evaluation split.
        """
        keys = {
            "split": self.config["evaluation"]["split"],
            "at_tokens": self.at_tokens(value.selector),
            **value.row_keys,
        }
        corpus = keys.pop("corpus", None)
        keys |= {"data_name": corpus} if corpus else {"data": self.config["planned"]["fingerprint"]}
        return [row for row in self.rows if all(row.get(key) == keys[key] for key in keys)]

    def blocks(self, row: Row) -> BlockSums | None:
        """Return a row's summed losses and target counts by block; None if they were not saved."""
        return row_blocks(row, self.block_arrays)

    @property
    def _evaluated_at_tokens(self) -> set[int]:
        """The numbers of training tokens at which a checkpoint was or will be evaluated."""
        measured = {row["at_tokens"] for row in self.rows if row.get("at_tokens") is not None}
        return measured | set(self.config["evaluation"].get("at_tokens") or [])

    def _has(self, key: str, value: Any) -> bool:
        if key in self.config["choices"]:
            return self.config["choices"][key] == value
        if key == "tokens" and value in self._evaluated_at_tokens:
            return True
        return canonical(select(self.config, key)) == value


@dataclass(frozen=True)
class Experiment:
    """The runs in a folder, in the order of its plan, and the other contents of the plan.

    `command` is the command that planned the runs, `not_started` names planned runs without a
    directory, `corrupt` maps runs that cannot be read to the reason, and `about` has the
    descriptions from the experiment's YAML file.
    """

    name: str
    folder: str
    command: str
    runs: Sequence[Run]
    not_started: Sequence[str] = ()
    corrupt: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    premises: Sequence[Claim] = ()
    published: Sequence[PublishedCurve] = ()

    @property
    def evaluated(self) -> list[Run]:
        return [run for run in self.runs if run.rows]

    @cached_property
    def final_rows(self) -> list[tuple[Run, Row]]:
        """Pairs of a run and one of its comparable rows, for the final weights only."""
        return [
            (run, row)
            for run in self.runs
            for row in run.comparable_rows
            if row.get("at_tokens") is None
        ]


def read_experiment(folder: Path, select: SelectRuns | None = None) -> Experiment:
    """Read the runs in an experiment's folder, or only those that `select` returns.

    A run with corrupt files does not affect the others. Raises ConfigError if the folder contains
    no runs, and RunError if plan.json is invalid or no run has been evaluated.
    """
    directories = list_runs(folder)
    if not directories:
        raise ConfigError(_no_runs_message(folder))
    plan = read_plan(folder)
    planned: list[str] = plan["runs"]
    if select is not None:
        directories = select(directories)
        selected = {run.name for run in directories}
        planned = [name for name in planned if name in selected]
    order = {name: i for i, name in enumerate(planned)}
    runs, corrupt = _read_runs(directories)
    missing = "config.yaml is missing; rerun the command to recreate it"
    corrupt |= {
        name: RunDirectory(folder / name).status().error or missing
        for name in order
        if (folder / name).is_dir() and not (folder / name / "config.yaml").exists()
    }
    runs.sort(key=lambda run: (order.get(run.name, len(order)), natural_key(run.label), run.name))
    if not any(run.rows for run in runs):
        raise RunError(_none_evaluated_message(folder, runs, corrupt))
    present = {*corrupt, *(run.name for run in runs)}
    return Experiment(
        name=folder.resolve().name,
        folder=_shorten_paths(str(folder)),
        command=(plan.get("command") or "").replace(f"{Path.cwd()}/", ""),
        runs=runs,
        not_started=[name for name in order if name not in present],
        corrupt=corrupt,
        about=plan.get("about") or runs[0].config.get("about") or {},
        **_claims(folder, plan),
    )


def _claims(folder: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims, premises and published curves; raises RunError if one is invalid."""
    try:
        return {
            "claims": parse_claims(plan.get("claims")),
            "premises": parse_claims(plan.get("premises"), "premises"),
            "published": parse_published(plan.get("published")),
        }
    except ConfigError as error:  # edited, or written by another version
        raise RunError(
            f"{folder / 'plan.json'}: {error}; rerun the command to recreate this file"
        ) from None


def _read_runs(directories: Sequence[RunDirectory]) -> tuple[list[Run], dict[str, str]]:
    """Return the runs that can be read, and the reason for each run that cannot."""
    runs: list[Run] = []
    corrupt: dict[str, str] = {}
    for directory in directories:
        try:
            runs.append(_read_run(directory))
        except RunError as error:
            corrupt[directory.name] = abbreviate(_shorten_paths(printable(str(error))))
        except OSError as error:
            corrupt[directory.name] = _shorten_paths(printable(describe_path_error(error)))
    labels = run_labels([run.config for run in runs])
    selected = select_comparable([(run.train_length, run.rows) for run in runs])
    return [
        replace(run, label=label, rows=[*comparable, *others], comparable_rows=comparable)
        for run, label, (comparable, others) in zip(runs, labels, selected, strict=True)
    ], corrupt


def _read_run(directory: RunDirectory) -> Run:
    config, status = directory.verified_config_dict(), directory.status()
    status = status.replace(error=_shorten_paths(status.error or "") or None)
    log, timing = directory.metrics(), directory.timing()
    directory.check_logs(status, log, timing)
    stopped_early = bool(log and log[-1].get(STOPPED_EARLY))
    trained = status.state == "finished" or 0 < status.total_tokens <= status.tokens
    trained = trained or stopped_early
    rows = read_evaluation(directory.evaluation_file, config["planned"]["hash"]) if trained else []
    return Run(
        name=directory.name,
        label=directory.name,
        config=config,
        status=status,
        rows=rows,
        saved_rows=rows,
        timing=timing,
        positions=directory.losses_by_position(rows) if trained else {},
        block_arrays=directory.losses_by_block(rows) if trained else {},
        metrics={key: value for row in log for key, value in row.items()},
        ngrams=directory.ngrams(config["planned"]["hash"]),
    )


def _shorten_paths(text: str) -> str:
    """Return `text` with paths relative to the working directory or to the home directory."""
    return replace_home(text.replace(f"{Path.cwd()}/", ""), "~")


def _no_runs_message(folder: Path) -> str:
    others = sorted({file.parent.parent.name for file in folder.parent.glob("*/*/config.yaml")})
    problem = "contains no runs" if folder.is_dir() else "does not exist"
    if results := describe_other_results(folder):
        problem = f"contains no runs, but {results}"
    remedy = f"available: {', '.join(others)}" if others else "create runs with `posenc train`"
    return f"{folder} {problem} ({remedy}){did_you_mean(folder.name, others)}"


def _none_evaluated_message(folder: Path, runs: Sequence[Run], corrupt: Mapping[str, str]) -> str:
    if corrupt:
        run, reason = next(iter(corrupt.items()))
        return f"{folder}: no run has usable results; {run}: {reason}"
    states = Counter(run.status.state for run in runs)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    command = experiment_command("status", folder)
    return f"{folder}: no run has been evaluated yet ({counts}); see `{command}`"
