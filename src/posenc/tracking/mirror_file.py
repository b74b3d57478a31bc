"""`mirror.json`: the record of what has been logged to the W&B run of a run directory.

Also keeps W&B's offline files in one folder per run, `wandb/run-<name>`.
"""

import hashlib
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.config.errors import RunError
from posenc.config.values import json_digest, wrong_types
from posenc.runs.files import corrupt_file_error, read_mapping, write_atomic, write_json
from posenc.runs.run_directory import RunDirectory
from posenc.runs.trusted_code import is_trusted, record_trusted
from posenc.tracking.git_state import git_diff, git_state
from posenc.tracking.wandb_config import (
    run_id,
    sweep_trial_id,
    wandb_folder,
    wandb_id,
)
from posenc.tracking.wandb_history import (
    EVALUATION_AXES,
    Row,
    evaluation_history,
    swap_rows,
)

if TYPE_CHECKING:
    from wandb import Run


MEDIA_KEY, SWAPS_KEY = "loss_by_position", "swaps"
DIFF_FILE = "diff.patch"
FILE_TYPES = {
    "identity": dict,
    "entries": list[dict],
    "digest": str,
    "logged_characters": int,
    "file_sizes": dict[str, int] | None,
}

IDENTITY_TYPES = {"id": str, "job_type": str, "git_commit": str, "git_dirty": bool}
WANDB_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
RELATIVE_PATH = re.compile(r"[^/\0]{1,255}(/[^/\0]{1,255}){,9}")


class MirrorFile:
    """`mirror.json`: the W&B run's id, the steps of its evaluation results, and its offline files.

    `identity` is written when the W&B run is first opened. Each entry is `{"step", "row"}` with a
    history row, `{"step", "loss_by_position"}` with a digest of the losses in the table and the
    image, or `{"step", "swaps"}` with a digest of the table of swaps; `digest` is that of all
    entries. `logged_characters` is the number of characters of run.log that are on the server.
    `file_sizes` maps each offline run file to its size in bytes once all rows have been logged. It
    is empty if the rows are on the server, and None while the W&B run is open or if W&B has failed.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.file = directory.path / "mirror.json"
        contents = read_mapping(self.file, FILE_TYPES)
        self.identity: dict[str, Any] = contents.get("identity", {})
        self.entries: list[dict[str, Any]] = contents.get("entries", [])
        self.logged_characters: int = contents.get("logged_characters", 0)
        self.has_file_sizes = "file_sizes" in contents
        self.file_sizes: dict[str, int] | None = contents.get("file_sizes")
        _check_contents(self.file, contents)
        if not self._is_own_run(self.run_id):
            raise RunError(
                f"{self.file} names the W&B run {self.run_id}, which this run did not start on this"
                f" machine; delete the file to log to a new W&B run"
            )

    @property
    def run_id(self) -> str:
        return self.identity.get("id") or run_id(self.directory)

    def _is_own_run(self, id_: str) -> bool:
        """Whether a W&B run belongs to this run: by its name, or as a trial of the user's sweep.

        A run directory may come from someone else, and must not name another of the user's runs.
        """
        is_named = id_.endswith(f".{self.directory.name}")
        return is_named or id_ == run_id(self.directory) or is_trusted("trial", id_)

    @property
    def job_type(self) -> str:
        """The job that first logged the run: `train`, or `evaluate` if training was not logged."""
        return self.identity.get("job_type", "train")

    @property
    def git(self) -> dict[str, Any]:
        """`git_commit` and `git_dirty` at the time of the first start, if known."""
        return {key: value for key, value in self.identity.items() if key.startswith("git_")}

    def newest(self, kind: str) -> dict[str, Any] | None:
        """Return the last entry that has the key `kind`: MEDIA_KEY or SWAPS_KEY."""
        return next((entry for entry in reversed(self.entries) if kind in entry), None)

    @property
    def is_complete(self) -> bool | None:
        """Whether all rows are on the server or in intact offline run files.

        None if there is no W&B run, or if an earlier version of posenc logged it.
        """
        if not self.has_file_sizes:
            return None
        if self.file_sizes is None:
            return False
        folder = wandb_folder(self.directory)
        return all(
            (folder / name).is_file() and (folder / name).stat().st_size >= size
            for name, size in self.file_sizes.items()
        )

    def record_open(self, job_type: str, *, save_diff: bool) -> None:
        """Record that the W&B run is incomplete and, when it first starts, its identity.

        At the first start of a training run, its git state is part of the identity and, if
        `save_diff`, `diff.patch` is written. Neither applies to a run that has already been
        trained: it may be from someone else, and its code was not that of the current repository.
        """
        if not self.file.exists():
            self.directory.path.mkdir(parents=True, exist_ok=True)
            starts_training = job_type == "train" and not (
                self.directory.status().tokens or self.directory.has_results()
            )
            if starts_training and save_diff and (diff := git_diff()):
                write_atomic(self.directory.path / DIFF_FILE, diff)
            if trial := sweep_trial_id():
                record_trusted({"trial": [trial]})
            self.identity = {
                "id": trial or run_id(self.directory),
                "job_type": job_type,
                **(git_state() if starts_training else {}),
            }
        self.has_file_sizes, self.file_sizes = True, None
        self._write()

    def record_complete(self, *, offline: bool) -> None:
        """Record that all rows have been logged to the server or, if `offline`, to files."""
        folder = wandb_folder(self.directory)
        # There is one file, unless a process was killed.
        files = sorted(folder.glob(f"*run-*/run-{self.run_id}.wandb")) if offline else []
        self.has_file_sizes = True
        self.file_sizes = {str(f.relative_to(folder)): f.stat().st_size for f in files}
        self._write()

    def record_new_id(self) -> None:
        """Record a new W&B id, because the server already has other rows under the usual id."""
        new_id = wandb_id(secrets.token_hex(4), self.directory.name)
        self.identity = {"job_type": "train", **self.identity, "id": new_id}
        self._write()

    def add_new_results(self, config: DictConfig) -> None:
        """Assign a step to every evaluation result that is new or has changed."""
        results = self.directory.rows()
        arrays = self.directory.losses_by_position(results)
        logged = {_curve_point(e["row"]): e["row"] for e in self.entries if "row" in e}
        rows = evaluation_history(results, arrays, config)
        new_entries: list[dict[str, Any]] = [
            {"row": row} for row in rows if logged.get(_curve_point(row)) != row
        ]
        swaps = swap_rows(results)
        swaps_digest = hashlib.sha256(repr(swaps).encode()).hexdigest()[:16]
        digests = {MEDIA_KEY: _arrays_digest(arrays), SWAPS_KEY: swaps_digest}
        for kind, content in ((MEDIA_KEY, arrays), (SWAPS_KEY, swaps)):
            if content and (self.newest(kind) or {}).get(kind) != digests[kind]:
                new_entries.append({kind: digests[kind]})
        if new_entries:
            used_steps = [e["step"] for e in [*self.entries, *self.directory.metrics()[-1:]]]
            first_step = max(used_steps, default=0) + 1
            self.entries += [
                {"step": i, **entry} for i, entry in enumerate(new_entries, first_step)
            ]
            self._write()

    def _write(self) -> None:
        contents: dict[str, Any] = {
            "identity": self.identity,
            "entries": self.entries,
            "digest": json_digest(self.entries)[:16],
            "logged_characters": self.logged_characters,
        }
        if self.has_file_sizes:
            contents["file_sizes"] = self.file_sizes
        write_json(self.file, contents)


def wandb_is_complete(directory: RunDirectory) -> bool | None:
    """Return `MirrorFile.is_complete`, or False if `mirror.json` is corrupt."""
    try:
        return MirrorFile(directory).is_complete
    except RunError:
        return False


def _check_contents(file: Path, contents: Mapping[str, Any]) -> None:
    """Raise RunError for an invalid identity, entry or file name in `mirror.json`."""
    identity = contents.get("identity", {})
    if wrong_types(identity, IDENTITY_TYPES) or not WANDB_ID.fullmatch(identity.get("id", "-")):
        raise corrupt_file_error(file, "its identity is invalid")
    entries = contents.get("entries", [])
    if not all(map(_is_entry, entries)):
        raise corrupt_file_error(file, "an entry has no step, or an invalid row")
    if contents.get("digest") not in (None, json_digest(entries)[:16]):
        raise corrupt_file_error(file, "its entries have been edited")
    if not all(map(RELATIVE_PATH.fullmatch, contents.get("file_sizes") or {})):
        raise corrupt_file_error(file, "file_sizes has an invalid name")


def _is_entry(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has a step and a valid row, if any: numbers or null, with one axis."""
    row = entry.get("row", {})
    is_row = isinstance(row, dict) and set(map(type, row.values())) <= {int, float, NoneType}
    axes = sum(name in row for name in EVALUATION_AXES) if is_row else 0
    return type(entry.get("step")) is int and is_row and axes == ("row" in entry)


def _curve_point(row: Row) -> tuple[Any, ...]:
    """Return the key of a history row: its axis, its value on that axis, and its metric names."""
    (axis,) = (name for name in EVALUATION_AXES if name in row)
    return (axis, row[axis], *(name for name in sorted(row) if name != axis))


def _arrays_digest(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()[:16]


def replace_earlier_files(run: "Run", name: str) -> None:
    """Rename the folder of a closed offline run to `run-<name>`, and remove its earlier folders.

    Earlier folders are those of the previous launch and of killed processes. Viewers
    such as `wandb leet` then list the run once, by its name.
    """
    folder = Path(run.settings.sync_dir)
    target = folder.with_name(f"run-{name}")
    folder_pattern = re.compile(rf"(offline-)?run-\d{{8}}_\d{{6}}-{re.escape(run.id)}(-\d+)?")
    for other in folder.parent.iterdir():
        if other == target or (folder_pattern.fullmatch(other.name) and other != folder):
            shutil.rmtree(other)
    folder.rename(target)
    for link in folder.parent.iterdir():  # latest-run, and links to logs in the folder
        if link.is_symlink() and not link.exists():
            parts_in_folder = link.readlink().parts[1:]
            link.unlink()
            if (target / Path(*parts_in_folder)).exists():
                link.symlink_to(Path(target.name, *parts_in_folder))
