"""`posenc sync`: uploads runs and the figures of the report to W&B, or recreates offline files."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from omegaconf import OmegaConf

from posenc.config.errors import PosencError, RunError
from posenc.runs.files import reject_special_files
from posenc.runs.lock import LOCK_TIMEOUT, lock
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.tracking.build_tracker import logs_to_trusted_destination, wandb_tracker
from posenc.tracking.mirror import checkpointed_rows
from posenc.tracking.mirror_file import MirrorFile
from posenc.tracking.wandb_client import close_run, init_run
from posenc.tracking.wandb_config import wandb_id
from posenc.tracking.wandb_tracker import WandbTracker

SyncOutcome = Literal["uploaded", "recreated", "complete", "running", "no checkpoint"]
REPORT_JOB_TYPE = "report"


def sync_run(directory: RunDirectory, *, offline: bool = False) -> SyncOutcome:
    """Upload a run's rows that are missing from W&B, and return the outcome.

    If `offline`, recreates the offline run files instead, unless they are complete. Either way,
    reads only the run directory, not the offline run files, which may be missing or incomplete.
    Skips a run that another process is running, or that has no checkpoint yet. Raises WandbError if
    W&B fails or cannot be reached, and another PosencError if the run's own files are corrupt or
    edited, or if `find_tracker` rejects its W&B entity.
    """
    if not checkpointed_rows(directory):
        return "no checkpoint"
    with lock(directory.lock_file, timeout=LOCK_TIMEOUT) as acquired:
        if not acquired:
            return "running"
        tracker = find_tracker(directory, offline=offline)
        values = directory.verified_config_dict()
        directory.check_logs(directory.status(), directory.metrics(), directory.timing())
        if offline and MirrorFile(directory).is_complete:
            return "complete"
        tracker.sync(directory, OmegaConf.create(values), offline=offline)
        return "recreated" if offline else "uploaded"


def upload_figures(folder: Path) -> bool:
    """Log `<folder>/report/*.png` as the W&B run `<experiment> report`.

    Returns whether anything was uploaded: False if there are no figures or W&B already has them.
    """
    figures = report_figures(folder)
    if not figures:
        return False
    reject_special_files([folder / "report", *figures.values()])
    (entity, project), experiment = experiment_project(folder), folder.resolve().name
    with init_run(
        id=wandb_id(experiment, REPORT_JOB_TYPE),
        name=f"{experiment} {REPORT_JOB_TYPE}",
        group=experiment,
        job_type=REPORT_JOB_TYPE,
        project=project,
        entity=entity,
        config={"experiment": experiment},
    ) as run:
        digest = hashlib.sha256(b"".join(map(Path.read_bytes, figures.values()))).hexdigest()[:16]
        is_new = run.summary.get("figures") != digest
        if is_new:
            import wandb

            run.log({key: wandb.Image(str(file)) for key, file in figures.items()})
            run.summary.update({"figures": digest})
        close_run(run, failed=False)
    return is_new


def report_figures(folder: Path) -> dict[str, Path]:
    """Map the W&B key of each figure in an experiment's report to its PNG file."""
    files = sorted((folder / "report").glob("*.png"))
    return {f"report/{file.stem}": file for file in files}


def experiment_project(folder: Path) -> tuple[str | None, str]:
    """Return the W&B entity and project of the first run that `find_tracker` accepts.

    If there is none, returns the default entity and project.
    """
    tracker = WandbTracker()
    for directory in list_runs(folder):
        with suppress(PosencError):
            tracker = find_tracker(directory)
            break
    return tracker.entity, tracker.project


def find_tracker(directory: RunDirectory, *, offline: bool = False) -> WandbTracker:
    """Return the run's W&B tracker, or the default one if the run used another logger.

    Raises RunError or ConfigError if the run's configuration is corrupt. Unless `offline`, also
    raises RunError if the run, which may be from someone else, has an entity other than
    WANDB_ENTITY, and the user has not trained with this mode, entity and project on this machine.
    """
    logger = directory.config().logger
    tracker = wandb_tracker(logger) or WandbTracker()
    is_own_entity = tracker.entity is None or tracker.entity == os.environ.get("WANDB_ENTITY")
    if not (offline or is_own_entity or logs_to_trusted_destination(logger)):
        raise RunError(
            f"you have not trained with the W&B mode, entity and project of this run"
            f" ({tracker.entity}/{tracker.project}) on this machine; to upload the run there, set"
            f" WANDB_ENTITY={tracker.entity!r}"
        )
    return tracker
