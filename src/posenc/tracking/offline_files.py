"""The local files of W&B runs: a single folder for each run, named after it."""

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wandb import Run


def offline_run_files(wandb_folder: Path, run_id: str) -> list[Path]:
    """Return the offline run files (`.wandb`) of a W&B run: one, unless a process was killed."""
    return sorted(wandb_folder.glob(f"*run-*/run-{run_id}.wandb"))


def replace_earlier_files(run: "Run", name: str) -> None:
    """Rename the folder of a closed offline run to `run-<name>`, and remove its earlier folders.

    Earlier folders are those of the previous start and of processes that were killed. Viewers
    such as `wandb leet` then list the run once, by its name.
    """
    folder = Path(run.settings.sync_dir)
    target, latest = folder.with_name(f"run-{name}"), folder.with_name("latest-run")
    started = re.compile(rf"(offline-)?run-\d{{8}}_\d{{6}}-{re.escape(run.id)}(-\d+)?")
    for other in folder.parent.iterdir():
        if other == target or (started.fullmatch(other.name) and other != folder):
            shutil.rmtree(other)
    folder.rename(target)
    if latest.is_symlink() and not latest.exists():
        latest.unlink()
        latest.symlink_to(target.name)
