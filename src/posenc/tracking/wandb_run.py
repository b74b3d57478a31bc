"""One Weights & Biases run for one run directory: a mirror that nothing depends on."""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.config.errors import ConfigError, did_you_mean, named
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.artifact import log_checkpoint
from posenc.tracking.identity import experiment_folder, run_config, wandb_id
from posenc.tracking.inspection import Inspection, log_inspection
from posenc.tracking.journal import Journal
from posenc.tracking.mirror import Mirror
from posenc.tracking.session import abandon, close_run, open_run, uploading

if TYPE_CHECKING:
    from wandb import Run

log = logging.getLogger(__name__)

MODES = ("online", "offline", "disabled")
TAG_LENGTH = 64


class Wandb:
    """W&B run `<experiment folder>.<run>` in the group of its experiment.

    `mode` is online, offline or disabled; null takes WANDB_MODE, and offline where that is not
    set. A row of the training log stands at its own step and evaluation follows at later ones,
    so that a run which was stopped and resumed is one run with every step once. With
    `checkpoints` the final one is kept as an artifact.
    """

    def __init__(
        self,
        mode: str | None = None,
        project: str = "posenc",
        entity: str | None = None,
        tags: Sequence[str] = (),
        checkpoints: bool = False,
    ) -> None:
        self.mode = _mode(mode)
        _check(project, tags)
        self.project, self.entity, self.tags = project, entity, tags
        self.checkpoints = checkpoints
        self._run: Run | None = None

    def start(self, run: RunDirectory, config: DictConfig) -> None:
        if self.mode == "disabled":
            return
        self._directory = run
        self._attempt(lambda: self._open(run, config))

    def log(self, rows: list[dict[str, Any]]) -> None:
        self._with_run(lambda _: self._mirror.training(rows))

    def finish(self, failed: bool) -> None:
        self._with_run(lambda run: self._close(run, failed))
        self._run = None

    def upload(self, run: RunDirectory, config: DictConfig, rows: list[dict[str, Any]]) -> None:
        """Bring the run on the server level with its directory; RunError where that fails.

        `rows` are those of the training log that will not be taken back.
        """
        self._directory = run
        with uploading(**self._identity(Journal(run), config)) as wandb_run:
            self._mirror = Mirror(wandb_run, run, config)
            self._mirror.training(rows)
            self._close(wandb_run, failed=run.status().state != "finished")

    def inspection(self, found: Inspection) -> None:
        if self.mode == "disabled":
            return
        self._directory = found.run
        self._attempt(lambda: self._log_inspection(found))

    def _log_inspection(self, found: Inspection) -> None:
        folder = experiment_folder(found.run)
        run_id = wandb_id(folder.name, found.run.name)
        identity = self._of("inspect", found.run, run_id, found.config)
        wandb_run = self._run = open_run(self.mode, folder, **identity)
        log_inspection(wandb_run, found)
        close_run(wandb_run, failed=False)
        self._run = None

    def _open(self, run: RunDirectory, config: DictConfig) -> None:
        journal = Journal(run)
        journal.start()
        identity = self._identity(journal, config)
        self._run = open_run(self.mode, experiment_folder(run), **identity)
        self._mirror = Mirror(self._run, run, config)

    def _identity(self, journal: Journal, config: DictConfig) -> dict[str, Any]:
        run = journal.directory
        return self._of("train", run, journal.run_id, {**run_config(run, config), **journal.git})

    def _of(
        self, job_type: str, run: RunDirectory, run_id: str, config: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": run_id,
            "name": run.name,
            "group": experiment_folder(run).name,
            "job_type": job_type,
            "project": self.project,
            "entity": self.entity,
            "tags": self.tags,
            "config": config,
        }

    def _close(self, run: "Run", failed: bool) -> None:
        self._mirror.results()
        if self.checkpoints and not failed:
            log_checkpoint(run, self._directory)
        close_run(run, failed)

    def _with_run(self, action: Callable[["Run"], object]) -> None:
        if (run := self._run) is not None:
            self._attempt(lambda: action(run))

    def _attempt(self, action: Callable[[], object]) -> None:
        """Do it, or do without W&B from here on."""
        try:
            action()
        except (Exception, SystemExit) as error:
            abandon(self._run)
            self._run = None
            log.warning(
                "W&B failed (%s); %s goes on without it, its own files are complete and"
                " `posenc sync %s` uploads them",
                named(error),
                self._directory.name,
                experiment_folder(self._directory).name,
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
