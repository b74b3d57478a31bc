"""The Weights & Biases tracker (`logger=wandb`): one W&B run per run directory."""

import logging
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import experiment_command
from posenc.runs.run_directory import RunDirectory
from posenc.tracking import wandb_client
from posenc.tracking.mirror import Mirror
from posenc.tracking.mirror_file import MirrorFile, replace_earlier_files
from posenc.tracking.tracker import Inspection, JobType, Tracker
from posenc.tracking.wandb_artifacts import log_checkpoint, log_code, use_dataset
from posenc.tracking.wandb_client import (
    abandon_run,
    close_run,
    failure_reason,
    init_run,
    open_run,
    time_limit,
)
from posenc.tracking.wandb_config import experiment_folder, run_config, run_id

if TYPE_CHECKING:
    from wandb import Run

log = logging.getLogger(__name__)

MODES = ("online", "offline", "disabled")
MAX_TAG_LENGTH = 64
MAX_ALERT_TITLE_LENGTH = 63


class WandbTracker(Tracker):
    """Mirrors a run as the W&B run `<experiment folder>.<run>`, grouped by experiment.

    `mode` is online, offline or disabled; None means WANDB_MODE, or offline if that is not set. An
    interrupted and resumed run remains a single W&B run in which each step occurs once. If
    `save_code` is true, the W&B run includes the uncommitted changes of the git repository in which
    the run was started; if it is online or synchronized, also posenc's code as an artifact. If
    `checkpoints` is true, the final checkpoint of a finished run is also uploaded as an artifact.
    In a W&B sweep, the run is logged to the trial's W&B run, whose ID the agent has assigned.
    """

    def __init__(
        self,
        mode: str | None = None,
        project: str = "posenc",
        entity: str | None = None,
        tags: Sequence[str] = (),
        save_code: bool = True,
        checkpoints: bool = False,
    ) -> None:
        self.mode = _resolve_mode(mode)
        _validate_names(project, tags)
        self.project, self.entity, self.tags = project, entity, tags
        self.save_code, self.checkpoints = save_code, checkpoints
        self._run: Run | None = None

    def start(self, run: RunDirectory, config: DictConfig, job_type: JobType = "train") -> None:
        if self.mode == "disabled":
            return
        self._directory = run
        with self._failures_as_warnings():
            mirror_file = MirrorFile(run)
            is_new = not mirror_file.file.exists()
            mirror_file.record_open(job_type, save_diff=self.save_code)
            init_kwargs = self._training_kwargs(mirror_file, config)
            self._run = open_run(self.mode, experiment_folder(run), **init_kwargs)
            if is_new and _close_if_id_is_taken(self._run, mirror_file):
                init_kwargs = self._training_kwargs(mirror_file, config)
                self._run = open_run(self.mode, experiment_folder(run), **init_kwargs)
            self._mirror = Mirror(self._run, run, config)

    def log(self, rows: list[dict[str, Any]]) -> None:
        if self._run is not None:
            with self._failures_as_warnings():
                self._mirror.log_training(rows)

    def finish(self, failed: bool, error: str | None = None) -> None:
        if self._run is not None:
            limit = wandb_client.REQUEST_TIMEOUT + wandb_client.FINISH_TIMEOUT
            with self._failures_as_warnings(), time_limit(limit):
                if error is not None:
                    title = f"{self._directory.name} failed"[:MAX_ALERT_TITLE_LENGTH]
                    self._run.alert(title, error, level="ERROR")
                self._finish(self._run, failed)
            self._run = None

    def sync(self, run: RunDirectory, config: DictConfig, *, offline: bool) -> None:
        """Log everything that is missing on the server, or rewrite the offline files.

        Raises WandbError if W&B fails.
        """
        self._directory, mirror_file = run, MirrorFile(run)
        is_new = not mirror_file.file.exists()
        if offline:
            mirror_file.record_open("train", save_diff=False)
        kwargs = self._training_kwargs(mirror_file, config)
        with init_run(experiment_folder(run) if offline else None, **kwargs) as wandb_run:
            is_closed = is_new and _close_if_id_is_taken(wandb_run, mirror_file)
            if not is_closed:
                self._mirror = Mirror(wandb_run, run, config)
                self._finish(wandb_run, failed=run.status().state != "finished")
        if is_closed:
            self.sync(run, config, offline=offline)

    def log_inspection(self, inspection: Inspection) -> None:
        if self.mode == "disabled":
            return
        run = self._directory = inspection.run
        with self._failures_as_warnings(can_sync=False):
            init_kwargs = self._init_kwargs("inspect", run, run_id(run), inspection.config)
            self._run = open_run(self.mode, experiment_folder(run), **init_kwargs)
            self._run.log(_wandb_media(inspection), commit=True)
            close_run(self._run, failed=False)
            self._run = None

    def _training_kwargs(self, mirror_file: MirrorFile, config: DictConfig) -> dict[str, Any]:
        run = mirror_file.directory
        metadata = {**run_config(run, config), **mirror_file.git}
        kwargs = self._init_kwargs(mirror_file.job_type, run, mirror_file.run_id, metadata)
        return {**kwargs, "tags": _tags(self.tags, run, config)}

    def _init_kwargs(
        self, job_type: str, run: RunDirectory, wandb_id: str, config: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments of `wandb.init`."""
        return {
            "id": wandb_id,
            "name": run.name,
            "group": experiment_folder(run).name,
            "job_type": job_type,
            "project": self.project,
            "entity": self.entity,
            "tags": self.tags,
            "config": config,
        }

    def _finish(self, run: "Run", failed: bool) -> None:
        """Log the results and files, and close the W&B run."""
        self._mirror.log_results()
        if not run.offline:
            self._log_artifacts(run, failed)
        close_run(run, failed)
        if run.offline:
            replace_earlier_files(run, self._directory.name)
        mirror_file = MirrorFile(self._directory)
        if not run.offline:
            mirror_file.logged_characters = self._mirror.logged_characters
        mirror_file.record_complete(offline=run.offline)

    def _log_artifacts(self, run: "Run", failed: bool) -> None:
        use_dataset(run, self._mirror.config)
        if self.save_code:
            log_code(run, self._directory, self._mirror.config)
        if self.checkpoints and not failed:
            log_checkpoint(run, self._directory)

    @contextmanager
    def _failures_as_warnings(self, *, can_sync: bool = True) -> Generator[None]:
        """Log a W&B failure as a warning and continue the run without W&B."""
        try:
            yield
        except (Exception, SystemExit) as error:
            abandon_run(self._run)
            self._run = None
            command = experiment_command("sync", experiment_folder(self._directory))
            remedy = f" (upload them later with `{command}`)" if can_sync else ""
            log.warning(
                "W&B failed (%s); %s is no longer logged to it, but all local files are intact%s",
                failure_reason(error),
                self._directory.name,
                remedy,
            )


def _close_if_id_is_taken(run: "Run", mirror_file: MirrorFile) -> bool:
    """Close a new W&B run if the server already has rows for it, and record a new id.

    The rows come from an earlier run directory of the same name, or from this one before its
    mirror.json was deleted. Returns whether the W&B run was closed.
    """
    if run.offline or not run.starting_step:
        return False
    close_run(run, failed=False)
    mirror_file.record_new_id()
    return True


def _tags(tags: Sequence[str], run: RunDirectory, config: DictConfig) -> list[str]:
    """Return the user's tags, and those to filter by: experiment, encoding and size."""
    automatic = [experiment_folder(run).name, config.choices.encoding, config.get("size")]
    return list(dict.fromkeys([*tags, *(tag[:MAX_TAG_LENGTH] for tag in automatic if tag)]))


def _wandb_media(inspection: Inspection) -> dict[str, Any]:
    """Return the tables and images of an inspection as W&B media objects."""
    import wandb

    tables = {
        f"tables/{name}": wandb.Table(
            columns=[column.name for column in table.columns],
            data=[list(row) for row in table.rows],
            allow_mixed_types=True,
        )
        for name, table in inspection.tables.items()
    }
    images = {f"figures/{file.stem}": wandb.Image(str(file)) for file in inspection.images}
    return {**tables, **images}


def _resolve_mode(configured: str | None) -> str:
    mode = configured or os.environ.get("WANDB_MODE") or "offline"
    if mode not in MODES:
        key = "logger.mode" if configured else "WANDB_MODE"
        raise ConfigError(
            f"{key}={mode}: unknown mode{did_you_mean(mode, MODES)};"
            f" choose one of {', '.join(MODES)}"
        )
    return mode


def _validate_names(project: str, tags: Sequence[str]) -> None:
    if not re.fullmatch(r"[^/\\#?%:]{1,128}", project):
        raise ConfigError(
            f"logger.project={project!r} must have 1 to 128 characters, and none of / \\ # ? % :"
        )
    for tag in tags:
        if not 1 <= len(tag) <= MAX_TAG_LENGTH:
            raise ConfigError(f"logger.tags: {tag!r} must have 1 to {MAX_TAG_LENGTH} characters")
