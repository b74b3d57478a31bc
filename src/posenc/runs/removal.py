"""Deletion of a run: its directory, its offline W&B files and its entry in the plan."""

import shutil
from pathlib import Path

from posenc.config.errors import RunError
from posenc.runs.files import read_json, write_json
from posenc.runs.lock import LOCK_TIMEOUT, lock
from posenc.runs.run_directory import RunDirectory


def run_paths(run: RunDirectory) -> list[Path]:
    """Return the run's directory and its offline W&B files.

    Raises RunError unless the directory has the name of the run in its configuration, so that no
    other folder is mistaken for a run.
    """
    if run.path.is_symlink() or run.config().frozen.get("run") != run.path.resolve().name:
        raise RunError(f"{run.path} is not the directory of the run that its config.yaml names")
    folder = run.path.resolve().parent
    offline = sorted((folder / "wandb").glob(f"*{folder.name}.{run.path.resolve().name}*"))
    return [run.path, *offline]


def total_bytes(paths: list[Path]) -> int:
    """Return the total size of files, including those in folders."""
    files = [file for path in paths for file in [path, *path.rglob("*")]]
    return sum(file.lstat().st_size for file in files if file.is_file())


def remove_run(run: RunDirectory) -> None:
    """Delete a run completely; raises RunError if a process is running it."""
    paths = run_paths(run)
    with lock(run.lock_file, timeout=LOCK_TIMEOUT) as acquired:
        if not acquired:
            raise RunError(f"{run.name} is being run by another process and was not deleted")
        _remove_from_plan(run)
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _remove_from_plan(run: RunDirectory) -> None:
    folder, name = run.path.resolve().parent, run.path.resolve().name
    plan_file = folder / "plan.json"
    with lock(folder / ".plan.lock"):
        if plan_file.exists():
            plan = read_json(plan_file)
            plan["runs"] = [other for other in plan["runs"] if other != name]
            plan.get("commands", {}).pop(name, None)
            write_json(plan_file, plan)
