"""Deletes a run, its local W&B files and, if it was the last run, the experiment's folder."""

import errno
import glob
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from posenc.config.errors import RunError
from posenc.runs.files import is_disk_full, reject_special_files, walk_entries, write_json
from posenc.runs.lock import LOCK_TIMEOUT, describe_holder, lock
from posenc.runs.plan_file import COPY_LOCK, PLAN_LOCK, read_plan
from posenc.runs.run_directory import RunDirectory, list_runs

DELETED_PREFIX = ".deleted-"
SHARED_FILES = (
    "plan.json",
    ".submitit",
    f".code/{'[0-9a-f]' * 12}",
    "wandb/latest-run",
    "wandb/debug*.log",
)
"""Patterns of files and folders in an experiment's folder that are of no use without its runs."""


def run_paths(run: RunDirectory) -> list[Path]:
    """Return the run's directory and its local W&B files.

    Raises RunError if the directory's name differs from the run's name in `config.yaml`, or if it
    is a symbolic link, so that no other folder is mistaken for a run.
    """
    run.check_name(run.config_dict())
    if run.path.is_symlink():
        raise RunError(f"{run.path} is a symbolic link; delete the directory that it points to")
    path = run.path.resolve()
    folder, (experiment, name) = path.parent, map(glob.escape, path.parts[-2:])
    reject_special_files([folder / "wandb"])
    local = {*folder.glob(f"wandb/*{experiment}.{name}*"), *folder.glob(f"wandb/run-{name}")}
    return [path, *sorted(local)]


def total_bytes(paths: list[Path]) -> int:
    """Return the total size of files, including those in folders."""
    files = [file for path in paths for file in [path, *map(Path, walk_entries(path))]]
    return sum(file.lstat().st_size for file in files if file.is_file())


def remove_run(run: RunDirectory) -> None:
    """Delete a run's directory, its local W&B files and its entry in the plan.

    The directory is renamed first, so that no partial run is left behind if the process is killed.
    When the last run is deleted, so is the experiment's folder, unless it has other contents.
    Raises RunError like `run_paths`, or if another process is executing the run.
    """
    path, *wandb_paths = run_paths(run)
    with lock(run.lock_file, timeout=LOCK_TIMEOUT) as acquired:
        if not acquired:
            holder = describe_holder(run.lock_file)
            raise RunError(f"{run.name} is being run by {holder} and was not deleted")
        folder, name = path.parent, path.name
        still_in_plan = False
        try:
            _remove_from_plan(folder, name)
        except OSError as error:
            if not is_disk_full(error):  # if it is full, update the plan after the deletion
                raise
            still_in_plan = True
        _set_aside(path)
        for wandb_path in wandb_paths:
            _delete(wandb_path)
    for deleted in folder.glob(f"{DELETED_PREFIX}*"):  # NFS keeps the lock file until it is closed
        _delete_with_retries(deleted)
    try:
        if still_in_plan:
            _remove_from_plan(folder, name)
        _remove_emptied_folder(folder)
    except RunError:
        if folder.exists():  # otherwise, another process has deleted it
            raise


def _set_aside(path: Path) -> None:
    """Move a run to a new folder; try again if another process deletes that folder first."""
    while True:
        folder = Path(mkdtemp(prefix=DELETED_PREFIX, dir=path.parent))
        try:
            path.rename(folder / path.name)
            return
        except FileNotFoundError:
            if folder.exists() or not path.exists():
                raise


def _remove_from_plan(folder: Path, name: str) -> None:
    """Remove a run from an experiment's plan, if it is there."""
    with lock(folder / PLAN_LOCK):
        plan = read_plan(folder)
        if name in plan["runs"] or name in plan["commands"]:
            plan["runs"] = [other for other in plan["runs"] if other != name]
            plan["commands"].pop(name, None)
            write_json(folder / "plan.json", plan)


def _remove_emptied_folder(folder: Path) -> None:
    """Delete an experiment's folder, unless it, its plan or its `wandb` folder still has runs.

    If the folder has other contents, such as a report, a benchmark or the user's own files, they
    are kept, and only the files that posenc and W&B write for all runs together are deleted.
    """
    with lock(folder / PLAN_LOCK):
        has_runs = read_plan(folder)["runs"] or list_runs(folder)
        if has_runs or any((folder / "wandb").glob("*run-*")):
            return
        for pattern in SHARED_FILES:
            for path in folder.glob(pattern):
                _delete(path)
        for name in (".code", "wandb"):
            with suppress(OSError):  # it does not exist, or has other files
                (folder / name).rmdir()
        if {path.name for path in folder.iterdir()} <= {PLAN_LOCK, COPY_LOCK}:
            shutil.rmtree(folder)


def _delete_with_retries(path: Path) -> None:
    """Delete a folder, although other processes may delete it or move runs into it."""
    while os.path.lexists(path):
        try:
            _delete(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def _delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
