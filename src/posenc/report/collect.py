"""Everything that an experiment's folder says, read once into plain values."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from posenc.claims.evidence import Evidence
from posenc.claims.grammar import Claim
from posenc.claims.judge import judge
from posenc.claims.parse import parse_claims
from posenc.claims.published import Published, parse_published
from posenc.claims.verdict import Verdict
from posenc.config.errors import ConfigError, RunError, did_you_mean
from posenc.report.labels import labels, natural
from posenc.runs.evaluation_rows import read_positions
from posenc.runs.files import read_json, read_lines
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.runs.status import Status


@dataclass(frozen=True)
class Run:
    """One run: `rows` and `positions` are empty until its training is over."""

    name: str
    label: str
    config: dict[str, Any]
    status: Status
    rows: tuple[dict[str, Any], ...]
    positions: dict[str, np.ndarray]
    last: dict[str, float]
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


@dataclass(frozen=True)
class Experiment:
    """The runs of a folder in the order of its plan, and what the plan says about them."""

    name: str
    runs: tuple[Run, ...]
    absent: tuple[str, ...]
    command: str
    about: dict[str, Any]
    folder: str
    claims: tuple[Claim, ...]
    published: tuple[Published, ...]

    @property
    def measured(self) -> list[Run]:
        return [run for run in self.runs if run.rows]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Of its claims, on its runs."""
        return judge(self.claims, Evidence(self.runs, self.command, self.folder))


def read_experiment(folder: Path) -> Experiment:
    """Read `folder`; ConfigError where it is none, RunError where nothing is measured yet."""
    directories = list_runs(folder)
    if not directories:
        raise ConfigError(_no_runs(folder))
    configs: list[Any] = [OmegaConf.to_container(d.config(), resolve=True) for d in directories]
    plan_file = folder / "plan.json"
    plan = read_json(plan_file) if plan_file.exists() else {}
    planned = list(plan.get("runs") or [])
    names = labels(configs)
    runs = [_run(*of) for of in zip(directories, configs, names, strict=True)]
    place = {name: i for i, name in enumerate(planned)}
    runs.sort(key=lambda run: (place.get(run.name, len(place)), natural(run.label), run.name))
    experiment = Experiment(
        name=folder.resolve().name,
        runs=tuple(runs),
        absent=tuple(name for name in planned if name not in {run.name for run in runs}),
        command=portable(plan.get("command") or ""),
        about=plan.get("about") or runs[0].config.get("about") or {},
        folder=portable(str(folder)),
        claims=tuple(parse_claims(plan.get("claims"))),
        published=tuple(parse_published(plan.get("published"))),
    )
    if not experiment.measured:
        raise RunError(_nothing_measured(experiment))
    return experiment


def portable(text: str) -> str:
    """`text` without the paths that are this machine's alone."""
    return text.replace(f"{Path.cwd()}/", "").replace(str(Path.home()), "~")


def _run(directory: RunDirectory, config: dict[str, Any], label: str) -> Run:
    status = directory.status()
    status = status.replace(error=portable(status.error or "") or None)
    trained = status.state == "finished" or 0 < status.total_tokens <= status.tokens
    last: dict[str, float] = {}
    for row in directory.metrics():
        last.update(row)
    return Run(
        name=directory.name,
        label=label,
        config=config,
        status=status,
        rows=tuple(directory.rows()) if trained else (),
        positions=read_positions(directory.positions_file) if trained else {},
        last=last,
        timing=tuple(read_lines(directory.timing_file)),
        files=tuple(
            file.name
            for file in (
                directory.config_file,
                directory.status_file,
                directory.metrics_file,
                directory.evaluation_file,
                directory.positions_file,
                directory.log_file,
            )
            if file.exists()
        ),
    )


def _no_runs(folder: Path) -> str:
    others = sorted({file.parent.parent.name for file in folder.parent.glob("*/*/config.yaml")})
    found = "holds no runs" if folder.is_dir() else "does not exist"
    there = f"there are {', '.join(others)}" if others else "`posenc train` makes some"
    return f"{folder}: {found}; {there}{did_you_mean(folder.name, others)}"


def _nothing_measured(experiment: Experiment) -> str:
    states = Counter(run.status.state for run in experiment.runs)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return (
        f"{experiment.name}: none of its {len(experiment.runs)} runs has been evaluated"
        f" ({counted}); see `posenc status name={experiment.name}`"
    )
