"""`mirror.json`: under which steps a run's results stand on its dashboard, once and for all.

Training rows stand at their own steps. W&B's history can only grow, so every later point takes the
next free step, in the order in which it became known; this file keeps that order.
"""

import hashlib
from typing import Any

from omegaconf import DictConfig

from posenc.runs.evaluation_rows import read_positions
from posenc.runs.files import read_json, write_json
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.identity import git_state, run_id, trial_id
from posenc.tracking.points import AXES, Point, evaluation_points

MEDIA = "loss_by_position"


class Journal:
    """`identity` is fixed at the first start; `entries` are points `{"step", "point"}`.

    An entry `{"step", "loss_by_position"}` has the digest of the arrays that a table and an image
    were made of.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.file = directory.path / "mirror.json"
        told = read_json(self.file) if self.file.exists() else {}
        self.identity: dict[str, Any] = told.get("identity", {})
        self.entries: list[dict[str, Any]] = told.get("entries", [])

    @property
    def run_id(self) -> str:
        return self.identity.get("id") or run_id(self.directory)

    @property
    def git(self) -> dict[str, Any]:
        """The state of the code at the first start, where it is known."""
        return {key: value for key, value in self.identity.items() if key.startswith("git_")}

    @property
    def newest_media(self) -> dict[str, Any] | None:
        return next((entry for entry in reversed(self.entries) if MEDIA in entry), None)

    def start(self) -> None:
        """Note who the run is, before its first training step."""
        if not self.file.exists():
            self.identity = {"id": trial_id() or run_id(self.directory), **git_state()}
            self._write()

    def update(self, config: DictConfig) -> None:
        """Give a step to every result of the run directory that has none yet."""
        rows = self.directory.rows()
        arrays = read_positions(self.directory.positions_file)
        known = {_key(e["point"]): e["point"] for e in self.entries if "point" in e}
        points = evaluation_points(rows, arrays, config)
        new: list[dict[str, Any]] = [
            {"point": point} for point in points if known.get(_key(point)) != point
        ]
        digest = _digest(arrays)
        if arrays and (self.newest_media or {}).get(MEDIA) != digest:
            new.append({MEDIA: digest})
        if new:
            self._append(new)

    def _append(self, new: list[dict[str, Any]]) -> None:
        taken = [entry["step"] for entry in self.entries]
        taken += [row["step"] for row in self.directory.metrics()[-1:]]
        first = max(taken, default=0) + 1
        self.entries += [{"step": step, **entry} for step, entry in enumerate(new, first)]
        self._write()

    def _write(self) -> None:
        write_json(self.file, {"identity": self.identity, "entries": self.entries})


def _key(point: Point) -> tuple[Any, ...]:
    """The curves that a point belongs to, and its place on them."""
    (axis,) = (name for name in AXES if name in point)
    return (axis, point[axis], *(name for name in sorted(point) if name != axis))


def _digest(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()[:16]
