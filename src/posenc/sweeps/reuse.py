"""Reuse of finished runs: a run that another experiment has finished is copied, not retrained.

Runs with the same name have the same identity, whichever experiment they belong to.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError, RunError
from posenc.config.settings import NAME_PATTERN
from posenc.runs.lock import is_locked, lock
from posenc.runs.plan_file import COPY_LOCK
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status

COPY_PREFIX = ".copy-"


def reused_experiments(sweep: DictConfig) -> list[str]:
    """Return the experiments in `reuse`. Raises ConfigError for an invalid name."""
    names: Any = OmegaConf.to_container(sweep.reuse, resolve=True)
    if not all(map(NAME_PATTERN.fullmatch, names)):
        raise ConfigError(f"reuse={names!r} must be a list of experiment names")
    return names


def finished_copies(run: RunDirectory, experiments: Sequence[str]) -> list[RunDirectory]:
    """Return the finished copies of `run` in `experiments`: none if `run` has been started."""
    if run.path.exists() and not _is_pending(run):
        return []
    copies = [RunDirectory(run.path.parents[1] / name / run.name) for name in experiments]
    return [copy for copy in copies if copy.status().state == "finished"]


def copy_run(source: RunDirectory, run: RunDirectory) -> None:
    """Copy a run's results, logs and checkpoints (if any), but not its W&B record (`mirror.json`).

    The copy is complete or absent, even if the process is killed. It replaces a run that was
    planned but not started. Does nothing if another process has started or copied the run in the
    meantime.
    """
    folder = run.path.parent
    with lock(folder / COPY_LOCK):
        if run.path.exists() and _is_pending(run):
            _move_pending_aside(run)
        for leftover in folder.glob(f"{COPY_PREFIX}*"):  # including those of killed processes
            shutil.rmtree(leftover)
        if not run.path.exists():
            _copy_files(source, run)


def _is_pending(run: RunDirectory) -> bool:
    """Return whether a run has been planned but not started."""
    try:
        not_started = run.status() == Status() and not run.has_results()
        return not_started and not is_locked(run.lock_file)
    except RunError:  # planning reports a lock file that cannot be used
        return False


def _move_pending_aside(run: RunDirectory) -> None:
    """Rename the directory of a run that has not been started; keep any other run."""
    with lock(run.lock_file, timeout=0) as acquired:
        if acquired and run.status() == Status() and not run.has_results():
            run.path.rename(Path(mkdtemp(prefix=COPY_PREFIX, dir=run.path.parent)) / run.name)


def _copy_files(source: RunDirectory, run: RunDirectory) -> None:
    temporary = RunDirectory(Path(mkdtemp(prefix=COPY_PREFIX, dir=run.path.parent)))
    try:
        temporary.checkpoints.mkdir()
        for checkpoint in source.checkpoints.glob("*"):  # copytree would hide that the disk is full
            shutil.copy2(checkpoint, temporary.checkpoints)
        files = [source.status_file, source.metrics_file, source.timing_file, source.log_file]
        files += [source.evaluation_file, source.positions_file, source.blocks_file]
        for file in [*files, source.ngrams_file, source.config_file]:
            if file.exists():
                shutil.copy2(file, temporary.path)
        temporary.path.chmod(source.path.stat().st_mode)
        temporary.path.rename(run.path)
    except BaseException:
        shutil.rmtree(temporary.path, ignore_errors=True)
        raise
