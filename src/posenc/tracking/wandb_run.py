"""One Weights & Biases run for one run directory: a mirror that nothing depends on."""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.config.errors import ConfigError, did_you_mean
from posenc.record.evaluation import row_key
from posenc.record.rundir import RunDirectory
from posenc.tracking.inspection import Tables, log_inspection
from posenc.tracking.points import (
    curve_point,
    experiment_folder,
    run_config,
    run_id,
    run_summary,
    training_point,
)
from posenc.tracking.session import abandon, close_run, open_run, reserve_steps

if TYPE_CHECKING:
    from wandb import Run

log = logging.getLogger(__name__)

MODES = ("online", "offline", "disabled")
TAG_LENGTH = 64


class Wandb:
    """W&B run `<experiment folder>.<run>` in the group of its experiment.

    `mode` is online, offline or disabled; null takes WANDB_MODE, and offline where that is not
    set. A row of the training log stands at its own step and evaluation follows at later ones,
    so that a run which was stopped and resumed is one run with every step once.
    """

    def __init__(
        self,
        mode: str | None = None,
        project: str = "posenc",
        entity: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self.mode = _mode(mode)
        _check(project, tags)
        self.project, self.entity, self.tags = project, entity, tags
        self._run: Run | None = None

    def start(self, run: RunDirectory, config: DictConfig) -> None:
        if self.mode == "disabled":
            return
        self._directory, self._config = run, config
        self._attempt(lambda: self._open("train", run_config(run, config)))

    def log(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            point = training_point(row)
            self._with_run(lambda run, point=point: run.log(point, step=point["step"], commit=True))

    def evaluation(self, rows: list[dict[str, Any]]) -> None:
        """Add points to the extrapolation curves and renew the summary of all that is measured."""
        if self._run is None:
            return
        ordered = sorted(rows, key=itemgetter("length"))
        points = [curve_point(row, self._config) for row in ordered]
        trained = [training_point(row) for row in self._directory.metrics()]
        known = {row_key(row): row for row in [*self._directory.rows(), *rows]}
        summary = run_summary(trained, list(known.values()), self._config)
        self._with_run(lambda run: self._add(run, points, summary))

    def finish(self, failed: bool) -> None:
        self._with_run(lambda run: close_run(run, failed))
        self._run = None

    def inspection(
        self,
        run: RunDirectory,
        config: Mapping[str, Any],
        tables: Tables,
        images: Sequence[Path],
    ) -> None:
        if self.mode == "disabled":
            return
        self._directory = run
        self._attempt(lambda: self._open("inspect", dict(config)))
        self._with_run(lambda run: log_inspection(run, tables, images))
        self.finish(False)

    def _open(self, job_type: str, config: dict[str, Any]) -> None:
        folder = experiment_folder(self._directory)
        self._run = open_run(
            self.mode,
            folder,
            id=run_id(self._directory),
            name=self._directory.name,
            group=folder.name,
            job_type=job_type,
            project=self.project,
            entity=self.entity,
            tags=self.tags,
            config=config,
        )

    def _add(self, run: "Run", points: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        first = reserve_steps(run, summary.get("step", 0) + 1, len(points))
        for step, point in enumerate(points, first):
            run.log(point, step=step, commit=True)
        run.summary.update(summary)

    def _with_run(self, action: Callable[["Run"], object]) -> None:
        if (run := self._run) is not None:
            self._attempt(lambda: action(run))

    def _attempt(self, action: Callable[[], object]) -> None:
        """Do it, or do without W&B from here on."""
        try:
            action()
        except (Exception, SystemExit) as error:
            self._run = None
            abandon()
            log.warning(
                "W&B failed (%s: %s); %s goes on without it, its own files are complete",
                type(error).__name__,
                " ".join(str(error).split()),
                self._directory.name,
            )


def _mode(given: str | None) -> str:
    mode = given or os.environ.get("WANDB_MODE") or "offline"
    if mode not in MODES:
        key = "logger.mode" if given else "WANDB_MODE"
        raise ConfigError(
            f"{key}={mode}: there is no such mode{did_you_mean(mode, MODES)};"
            f" there are {', '.join(MODES)}"
        )
    return mode


def _check(project: str, tags: Sequence[str]) -> None:
    if not re.fullmatch(r"[^/\\#?%:]{1,128}", project):
        raise ConfigError(
            f"logger.project={project!r}: give 1 to 128 characters, none of them / \\ # ? % :"
        )
    for tag in tags:
        if not 1 <= len(tag) <= TAG_LENGTH:
            raise ConfigError(f"logger.tags: {tag!r} must have 1 to {TAG_LENGTH} characters")
