"""Removing a run: its directory, what it left in W&B's folder, its place in the plan."""

import shutil
from pathlib import Path

from posenc.config.errors import RunError
from posenc.runs.files import read_json, write_json
from posenc.runs.lock import INSTANT, lock
from posenc.runs.run_directory import RunDirectory


def belongings(run: RunDirectory) -> list[Path]:
    """The run's directory and its offline fragments of W&B; RunError where it is none of posenc's.

    The configuration has to say the directory's own name, so that no other folder passes for a run.
    """
    if run.path.is_symlink() or run.config().frozen.get("run") != run.path.resolve().name:
        raise RunError(f"{run.path} is not the directory of the run that its config.yaml names")
    folder = run.path.resolve().parent
    mirror = sorted((folder / "wandb").glob(f"*{folder.name}.{run.path.resolve().name}*"))
    return [run.path, *mirror]


def size(paths: list[Path]) -> int:
    """Bytes of files and of all that lies in folders."""
    files = [file for path in paths for file in [path, *path.rglob("*")]]
    return sum(file.lstat().st_size for file in files if file.is_file())


def remove(run: RunDirectory) -> None:
    """Remove a run wholly; RunError where a process works on it."""
    paths = belongings(run)
    with lock(run.lock_file, wait=False, patience=INSTANT) as obtained:
        if not obtained:
            raise RunError(f"{run.name} is being run by another process; it is left alone")
        _forget(run)
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _forget(run: RunDirectory) -> None:
    """Take the run out of the plan, so that nothing expects it any more."""
    folder, name = run.path.resolve().parent, run.path.resolve().name
    file = folder / "plan.json"
    with lock(folder / ".plan.lock", wait=True):
        if file.exists():
            plan = read_json(file)
            plan["runs"] = [each for each in plan["runs"] if each != name]
            plan.get("commands", {}).pop(name, None)
            write_json(file, plan)
