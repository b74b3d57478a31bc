"""An experiment's folder as plain values: its runs, its plan, its claims and their verdicts."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from posenc.config.errors import ConfigError, RunError, did_you_mean
from posenc.report.claim import Claim
from posenc.report.claim_parser import parse_claims
from posenc.report.judge import Verdict, judge
from posenc.report.paired_samples import Evidence
from posenc.report.published_curves import PublishedCurve, parse_published
from posenc.report.run_labels import natural_key, run_labels
from posenc.runs.evaluation_rows import read_positions
from posenc.runs.files import read_json, read_lines
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.runs.status import Status


@dataclass(frozen=True)
class Run:
    """One run: `rows` and `positions` are empty until its training is over.

    `metrics` has the last logged value of each metric, `files` the names of its files.
    """

    name: str
    label: str
    config: dict[str, Any]
    status: Status
    rows: tuple[dict[str, Any], ...]
    positions: dict[str, np.ndarray]
    metrics: dict[str, float]
    timing: tuple[dict[str, Any], ...]
    files: tuple[str, ...]

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
        """The state with the error, if there is one."""
        error = self.status.error
        return f"{self.status.state}: {error}" if error else self.status.state


@dataclass(frozen=True)
class Experiment:
    """The runs of a folder in the order of its plan, and what the plan has beside them.

    `absent` are planned runs without a directory, `about` the experiment's own texts.
    """

    name: str
    runs: tuple[Run, ...]
    absent: tuple[str, ...]
    command: str
    about: dict[str, Any]
    folder: str
    claims: tuple[Claim, ...]
    published: tuple[PublishedCurve, ...]

    @property
    def evaluated(self) -> list[Run]:
        return [run for run in self.runs if run.rows]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return judge(self.claims, Evidence(self.runs, self.command, self.folder))


def read_experiment(folder: Path) -> Experiment:
    """Read an experiment's folder.

    Raises ConfigError where it holds no runs, RunError where none has been evaluated.
    """
    directories = list_runs(folder)
    if not directories:
        raise ConfigError(_no_runs(folder))
    configs: list[Any] = [OmegaConf.to_container(d.config(), resolve=True) for d in directories]
    plan_file = folder / "plan.json"
    plan = read_json(plan_file) if plan_file.exists() else {}
    planned = list(plan.get("runs") or [])
    labels = run_labels(configs)
    runs = [_read_run(*run) for run in zip(directories, configs, labels, strict=True)]
    order = {name: i for i, name in enumerate(planned)}
    runs.sort(key=lambda run: (order.get(run.name, len(order)), natural_key(run.label), run.name))
    experiment = Experiment(
        name=folder.resolve().name,
        runs=tuple(runs),
        absent=tuple(name for name in planned if name not in {run.name for run in runs}),
        command=_portable(plan.get("command") or ""),
        about=plan.get("about") or runs[0].config.get("about") or {},
        folder=_portable(str(folder)),
        claims=tuple(parse_claims(plan.get("claims"))),
        published=tuple(parse_published(plan.get("published"))),
    )
    if not experiment.evaluated:
        raise RunError(_none_evaluated(experiment))
    return experiment


def _read_run(directory: RunDirectory, config: dict[str, Any], label: str) -> Run:
    status = directory.status()
    status = status.replace(error=_portable(status.error or "") or None)
    trained = status.state == "finished" or 0 < status.total_tokens <= status.tokens
    metrics: dict[str, float] = {}
    for row in directory.metrics():
        metrics.update(row)
    files = (
        directory.config_file,
        directory.status_file,
        directory.metrics_file,
        directory.evaluation_file,
        directory.positions_file,
        directory.log_file,
    )
    return Run(
        name=directory.name,
        label=label,
        config=config,
        status=status,
        rows=tuple(directory.rows()) if trained else (),
        positions=read_positions(directory.positions_file) if trained else {},
        metrics=metrics,
        timing=tuple(read_lines(directory.timing_file)),
        files=tuple(file.name for file in files if file.exists()),
    )


def _portable(text: str) -> str:
    """Return `text` without the paths of this machine."""
    return text.replace(f"{Path.cwd()}/", "").replace(str(Path.home()), "~")


def _no_runs(folder: Path) -> str:
    others = sorted({file.parent.parent.name for file in folder.parent.glob("*/*/config.yaml")})
    problem = "holds no runs" if folder.is_dir() else "does not exist"
    remedy = f"available: {', '.join(others)}" if others else "`posenc train` makes runs"
    return f"{folder} {problem} ({remedy}){did_you_mean(folder.name, others)}"


def _none_evaluated(experiment: Experiment) -> str:
    states = Counter(run.status.state for run in experiment.runs)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return (
        f"{experiment.name}: no run has been evaluated yet ({counts}); see `posenc status"
        f" name={experiment.name}`"
    )
