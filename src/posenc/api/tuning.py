"""Tunes hyperparameters for the lowest validation loss, with one Optuna study per job.

Studies are not saved: suggestions depend only on the losses of earlier trials, which are saved with
the runs. The same command therefore suggests the same trials again, skips those whose runs have
finished, and continues from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from posenc.api.sweep_launch import Sweep, compose_training, launch_training, plan_training
from posenc.config.errors import ConfigError, import_extra
from posenc.config.search_space import INTERVAL_EXAMPLE, Interval, split_intervals
from posenc.runs.run_directory import RunDirectory

SAMPLER_SEED = 0
RANDOM_TRIALS = 4
"""Trials before the sampler uses earlier losses; a constant, so that a search can be extended."""


@dataclass(frozen=True)
class Trial:
    """A run and its values of the tuned hyperparameters.

    `loss` is None if the run failed, or if a callback ended it before its first validation.
    """

    values: dict[str, float]
    run: RunDirectory
    loss: float | None


@dataclass
class Search:
    """The trials of one job (a list of overrides); `validation` has its validation settings."""

    job: Sequence[str]
    study: Any
    validation: Any
    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> Trial | None:
        finished = [trial for trial in self.trials if trial.loss is not None]
        return min(finished, key=lambda trial: trial.loss or 0.0, default=None)


def tune(
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    num_trials: int,
    command: str,
    on_progress: Callable[[str], None],
) -> tuple[Sweep, list[Search], bool]:
    """Return the sweep, the search of each of its jobs, and whether all trials are complete.

    In each round, one trial of every job is trained, so that jobs can be trained in parallel.
    Raises ConfigError if no interval is set, or if runs do not measure the validation loss.
    """
    optuna = import_extra("optuna", "posenc tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    intervals, others = split_intervals(overrides)
    if not intervals:
        raise ConfigError(f"set an interval to search, such as {INTERVAL_EXAMPLE}")
    sweep = compose_training(others, config_dirs, overrides)
    searches = []
    for job in sweep.jobs:
        config, _ = sweep.composer.compose(job)
        if config.validation.every_tokens is None:
            raise ConfigError("tuning uses the validation loss; set validation.every_tokens")
        validation = OmegaConf.to_container(config.validation)
        searches.append(Search(job, _new_study(optuna), validation))
    distributions = {interval.key: _distribution(optuna, interval) for interval in intervals}
    for _ in range(num_trials):
        if not _run_round(sweep, searches, distributions, command, on_progress):
            return sweep, searches, False
    return sweep, searches, True


def _run_round(
    sweep: Sweep,
    searches: Sequence[Search],
    distributions: dict[str, Any],
    command: str,
    on_progress: Callable[[str], None],
) -> bool:
    """Train one trial of each search. Returns False if a run was interrupted."""
    suggested = [search.study.ask(distributions) for search in searches]
    jobs = [
        [*search.job, *(f"{key}={value!r}" for key, value in trial.params.items())]
        for search, trial in zip(searches, suggested, strict=True)
    ]
    planned_runs = plan_training(replace(sweep, jobs=jobs), command, on_progress)
    if len(planned_runs) != len(jobs):
        raise ConfigError("two of the jobs have the same settings; remove one of them")
    for search, planned in zip(searches, planned_runs, strict=True):
        if not planned.problem and planned.run.config_dict()["validation"] != search.validation:
            raise ConfigError(
                f"{planned.run.path} was started with other validation settings, so its loss"
                f" cannot be compared with those of new trials; use a different name=..."
            )
    _, statuses = launch_training(sweep, planned_runs)
    if not all(status.has_ended for status in statuses.values()):
        return False
    for search, trial, planned in zip(searches, suggested, planned_runs, strict=True):
        is_finished = statuses[planned.name].state == "finished"
        loss = _validation_loss(planned.run) if is_finished else None
        if loss is None:
            search.study.tell(trial, state=import_module("optuna.trial").TrialState.FAIL)
        else:
            search.study.tell(trial, loss)
        search.trials.append(Trial(dict(trial.params), planned.run, loss))
    return True


def _validation_loss(run: RunDirectory) -> float | None:
    """Return the last validation loss of a run, or None if it has none."""
    losses = [row["validation_loss"] for row in run.metrics() if "validation_loss" in row]
    return losses[-1] if losses else None


def _new_study(optuna: Any) -> Any:
    sampler = optuna.samplers.TPESampler(n_startup_trials=RANDOM_TRIALS, seed=SAMPLER_SEED)
    return optuna.create_study(sampler=sampler)


def _distribution(optuna: Any, interval: Interval) -> Any:
    kind = "IntDistribution" if interval.is_integer else "FloatDistribution"
    return getattr(optuna.distributions, kind)(interval.low, interval.high, log=interval.log)
