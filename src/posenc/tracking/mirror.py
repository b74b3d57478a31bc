"""Synchronizes a W&B run with its run directory; each step is logged once and in order.

Training rows keep their training steps. W&B's history is append-only, so each new evaluation result
gets the next free step, and `mirror.json` in the run directory records these steps.
"""

import hashlib
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.runs.evaluation_rows import read_arrays
from posenc.runs.files import corrupt_file, read_mapping, write_json
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.offline_files import last_logged_step
from posenc.tracking.wandb_config import git_state, run_id, sweep_trial_id
from posenc.tracking.wandb_history import (
    EVALUATION_AXES,
    Row,
    evaluation_history,
    training_row,
)
from posenc.tracking.wandb_media import position_media
from posenc.tracking.wandb_summary import run_summary

if TYPE_CHECKING:
    from wandb import Run

MEDIA_KEY = "loss_by_position"


class Mirror:
    """Logs the missing rows of a W&B run; `last_step` is the last step that W&B has."""

    def __init__(self, run: "Run", directory: RunDirectory, config: DictConfig) -> None:
        self.run, self.directory, self.config = run, directory, config
        self.last_step = max(0, last_logged_step(run))

    def log_training(self, rows: list[dict[str, Any]]) -> None:
        """Log rows of the training log, and any earlier rows that are missing from W&B."""
        if rows and rows[0]["step"] > self.last_step + 1:
            rows = [r for r in self.directory.metrics() if r["step"] <= rows[-1]["step"]]
        for row in rows:
            self._log(row["step"], training_row(row))

    def log_results(self) -> None:
        """Log the evaluation results, if there are any, and update the summary."""
        if self.directory.rows():
            mirror_file = MirrorFile(self.directory)
            mirror_file.add_new_results(self.config)
            self.log_training(self.directory.metrics())
            for entry in mirror_file.entries:
                if "row" in entry:
                    self._log(entry["step"], entry["row"])
                elif entry["step"] > self.last_step and entry is mirror_file.newest_media:
                    self._log(entry["step"], position_media(self.directory, self.config))
        self.run.summary.update(run_summary(self.directory, self.config))

    def _log(self, step: int, row: Row) -> None:
        if step > self.last_step:
            self.run.log(row, step=step, commit=True)
            self.last_step = step


class MirrorFile:
    """`mirror.json`: the W&B run's id and the steps of its evaluation results.

    `identity` is written when the run first starts. Each entry is a history row `{"step", "row"}`
    or `{"step", "loss_by_position"}` with a digest of the losses shown in a table and an image.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.file = directory.path / "mirror.json"
        contents = read_mapping(self.file, {"identity": dict, "entries": list[dict]})
        self.identity: dict[str, Any] = contents.get("identity", {})
        self.entries: list[dict[str, Any]] = contents.get("entries", [])
        if not all(isinstance(entry.get("step"), int) for entry in self.entries):
            raise corrupt_file(self.file, "an entry has no step")

    @property
    def run_id(self) -> str:
        return self.identity.get("id") or run_id(self.directory)

    @property
    def git(self) -> dict[str, Any]:
        """`git_commit` and `git_dirty` at the time of the first start, if known."""
        return {key: value for key, value in self.identity.items() if key.startswith("git_")}

    @property
    def newest_media(self) -> dict[str, Any] | None:
        return next((entry for entry in reversed(self.entries) if MEDIA_KEY in entry), None)

    def create(self) -> None:
        """Write the run's identity, unless the file exists."""
        if not self.file.exists():
            self.identity = {"id": sweep_trial_id() or run_id(self.directory), **git_state()}
            self._write()

    def add_new_results(self, config: DictConfig) -> None:
        """Assign a step to every evaluation result that is new or has changed."""
        arrays = read_arrays(self.directory.positions_file)
        logged = {_curve_point(e["row"]): e["row"] for e in self.entries if "row" in e}
        rows = evaluation_history(self.directory.rows(), arrays, config)
        new_entries: list[dict[str, Any]] = [
            {"row": row} for row in rows if logged.get(_curve_point(row)) != row
        ]
        digest = _digest(arrays)
        if arrays and (self.newest_media or {}).get(MEDIA_KEY) != digest:
            new_entries.append({MEDIA_KEY: digest})
        if new_entries:
            used_steps = [e["step"] for e in [*self.entries, *self.directory.metrics()[-1:]]]
            first_step = max(used_steps, default=0) + 1
            self.entries += [
                {"step": i, **entry} for i, entry in enumerate(new_entries, first_step)
            ]
            self._write()

    def _write(self) -> None:
        write_json(self.file, {"identity": self.identity, "entries": self.entries})


def _curve_point(row: Row) -> tuple[Any, ...]:
    """Return the identity of a history row: its axis, the value on it and the metric names."""
    (axis,) = (name for name in EVALUATION_AXES if name in row)
    return (axis, row[axis], *(name for name in sorted(row) if name != axis))


def _digest(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()[:16]
