"""Composes, plans and launches the runs of a sweep, for the commands and for `posenc.train`."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from posenc.benchmark.bench_settings import BENCH_KEYS
from posenc.config.components import build
from posenc.config.compose import Composer
from posenc.config.errors import ConfigError, describe_path_error
from posenc.config.grids import compose_sweep, expand_config
from posenc.config.paths import options
from posenc.jobs.job_config import compose_sweep_jobs
from posenc.runs.files import is_disk_full
from posenc.runs.status import Status
from posenc.sweeps.launcher import Launcher, PlannedRun
from posenc.sweeps.reuse import reused_experiments

MAX_PRECHECKED_JOBS = 20
"""At most this many jobs are checked before torch is imported; planning checks all jobs."""


@dataclass(frozen=True)
class Sweep:
    """The settings that all jobs share, their launcher, and the overrides of each job."""

    settings: DictConfig
    launcher: Launcher
    jobs: Sequence[Sequence[str]]
    composer: Composer

    @property
    def folder(self) -> Path:
        """The folder of the experiment."""
        return Path(self.settings.outputs_dir) / self.settings.name


def compose_training(
    overrides: Sequence[str], config_dirs: Sequence[Path], argv: Sequence[str]
) -> Sweep:
    """Return the sweep that `overrides` describe.

    `argv` is the user's command line; the error for a benchmark repeats it.

    Raises ConfigError for invalid overrides, and for an experiment that is a benchmark.
    """
    settings = compose_sweep("train", overrides, config_dirs)
    if benchmark_keys := [key for key in BENCH_KEYS if key in settings]:
        raise ConfigError(
            f"{', '.join(benchmark_keys)}: this is a benchmark, not an experiment to train;"
            f" run {shlex.join(['posenc', 'bench', *argv])}"
        )
    if not settings.hydra.launcher._target_.startswith("posenc."):
        available = ", ".join(options("hydra/launcher", config_dirs))
        raise ConfigError(f"hydra/launcher must be one of {available}")
    jobs = expand_config(settings, overrides, config_dirs)
    composer = Composer("train", config_dirs)
    # Report unknown keys and invalid values before the slow import of torch.
    compose_sweep_jobs(_jobs_with_new_overrides(jobs), composer)
    launcher: Launcher = build(settings.hydra.launcher, name="hydra.launcher")
    return Sweep(settings, launcher, jobs, composer)


def _jobs_with_new_overrides(jobs: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return up to MAX_PRECHECKED_JOBS jobs, each with an override that no earlier job has."""
    seen: set[str] = set()
    chosen = []
    for job in jobs:
        if not seen.issuperset(job) or not chosen:
            chosen.append(job)
            seen.update(job)
    return chosen[:MAX_PRECHECKED_JOBS]


def plan_training(
    sweep: Sweep, command: str, on_progress: Callable[[str], None]
) -> list[PlannedRun]:
    """Plan the runs of a sweep; see `posenc.sweeps.plan.plan`."""
    from posenc.sweeps.plan import plan

    sweep.launcher.check_available()
    reuse, local = reused_experiments(sweep.settings), sweep.launcher.local
    try:
        return plan(
            sweep.jobs,
            sweep.composer.config_dirs,
            command,
            on_progress,
            composer=sweep.composer,
            reuse=reuse,
            local=local,
        )
    except OSError as error:
        if is_disk_full(error):
            raise
        raise ConfigError(
            f"{describe_path_error(error)} (runs go to outputs_dir, prepared data to cache_dir)"
        ) from None


def launch_training(
    sweep: Sweep, planned_runs: Sequence[PlannedRun]
) -> tuple[dict[str, Status], dict[str, Status]]:
    """Launch the unfinished runs; return the status of every run by name, before and after.

    Failed runs are skipped unless the sweep has retry=true; runs with a `problem` are always
    skipped.
    """
    before = {planned.name: planned.status() for planned in planned_runs}
    outcomes: dict[str, Status] = {}
    skipped_states = {"finished"} if sweep.settings.retry else {"finished", "failed"}
    to_launch = [
        planned
        for planned in planned_runs
        if planned.problem is None and before[planned.name].state not in skipped_states
    ]
    for planned in to_launch:
        if planned.kept_settings:
            keys = ", ".join(planned.kept_settings)
            sweep.launcher.console.print(
                f"{planned.name} keeps the values of {keys} that it was started with"
            )
    if to_launch:
        finished = sum(status.state == "finished" for status in before.values())
        outcomes = sweep.launcher.launch(to_launch, finished)
    after = {planned.name: planned.final_status() for planned in planned_runs}
    for name, outcome in outcomes.items():
        if outcome.error and outcome.state == after[name].state:  # such as a job that never started
            after[name] = outcome
    return before, after
