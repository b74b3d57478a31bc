"""Uploading the runs of an experiment from their own directories."""

from pathlib import Path
from typing import Any, Literal

from posenc.config.components import build
from posenc.runs.lock import INSTANT, lock
from posenc.runs.run_directory import RunDirectory, runs_of
from posenc.tracking.figures import upload_figures
from posenc.tracking.wandb_run import Wandb
from posenc.training.checkpoint import found

Outcome = Literal["uploaded", "running", "not started"]


def sync_run(directory: RunDirectory) -> Outcome:
    """Bring a run's W&B run level with its directory; what is there already is not sent again.

    Neither the fragments that W&B keeps of offline runs are needed, nor that there are any. A run
    that a process is working on is left to it. RunError where W&B cannot be reached or fails.
    """
    rows = _lasting(directory)
    if not rows:
        return "not started"
    with lock(directory.lock_file, wait=False, patience=INSTANT) as obtained:
        if not obtained:
            return "running"
        config = directory.config()
        wandb_of(directory).upload(directory, config, rows)
    return "uploaded"


def sync_figures(folder: Path) -> bool:
    """Upload the figures of the experiment's report, if there is one and they are new."""
    tracker = wandb_of(runs_of(folder)[0])
    return upload_figures(folder, project=tracker.project, entity=tracker.entity)


def wandb_of(directory: RunDirectory) -> Wandb:
    """The W&B project that a run names; posenc's own for one that was run with `logger=none`."""
    config = directory.config()
    logger = build(config.logger, name="logger", modules=list(config.get("modules") or []))
    return logger if isinstance(logger, Wandb) else Wandb()


def _lasting(directory: RunDirectory) -> list[dict[str, Any]]:
    """The rows of the training log that a resumed run will not write again."""
    rows = directory.metrics()
    if directory.status().state == "finished":
        return rows
    checkpoints = found(directory.checkpoints)
    return [row for row in rows if checkpoints and row["step"] <= checkpoints[0].step]
