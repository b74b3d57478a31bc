"""Checkpoints whose names carry their own digest: wholly there and unchanged, or not used."""

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from posenc.config.errors import RunError

log = logging.getLogger(__name__)
NAME = re.compile(r"step-(\d+)-([0-9a-f]{16})\.ckpt")
KEPT = 2
FOREIGN = (UnpicklingError, AttributeError, EOFError, KeyError, RuntimeError, TypeError)
"""What torch raises for a file that is no zip of tensors, or of other things than a run saves."""


@dataclass(frozen=True)
class Checkpoint:
    """A file `step-<optimizer steps>-<digest>.ckpt`."""

    path: Path
    step: int
    digest: str

    def intact(self) -> bool:
        return _digest(self.path) == self.digest

    def state(self) -> dict[str, Any]:
        """What was saved, loaded without running code from the file; RunError where it is other
        than tensors and plain values."""
        with self._loading():
            return torch.load(self.path, map_location="cpu", weights_only=True)

    def weights(self) -> dict[str, torch.Tensor]:
        """The state of the Transformer alone."""
        with self._loading():
            state = self.state()["state_dict"]
            return {name.removeprefix("model."): value for name, value in state.items()}

    def refusal(self, error: Exception) -> RunError:
        """What a person is told of a file that is none of posenc's, whatever its name says."""
        first = str(error).strip().split("\n", 1)[0]
        return RunError(
            f"{self.path} is no checkpoint of this run ({type(error).__name__}: {first});"
            f" nothing in it was run; move it away"
        )

    @contextmanager
    def _loading(self) -> Iterator[None]:
        try:
            yield
        except FOREIGN as error:
            raise self.refusal(error) from error


def save(folder: Path, step: int, write: Callable[[Path], None]) -> Checkpoint:
    """Let `write` fill a file, give it its name once it is on disk, and keep the newest two.

    Those of later steps go too: they were corrupt, or the run would have gone on from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("writing-*.ckpt"):  # by a process that was killed
        left.unlink()
    temporary = folder / f"writing-{os.getpid()}.ckpt"
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        digest = _digest(temporary)
        checkpoint = Checkpoint(folder / f"step-{step:09d}-{digest}.ckpt", step, digest)
        os.replace(temporary, checkpoint.path)
    finally:
        temporary.unlink(missing_ok=True)
    kept = [each for each in found(folder) if each.step <= step][:KEPT]
    for old in found(folder):
        if old not in kept:
            old.path.unlink(missing_ok=True)
    return checkpoint


def found(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a folder by name alone, newest first."""
    matches = [(path, NAME.fullmatch(path.name)) for path in folder.glob("step-*.ckpt")]
    checkpoints = [Checkpoint(p, int(m[1]), m[2]) for p, m in matches if m]
    return sorted(checkpoints, key=lambda c: (c.step, c.path.stat().st_mtime_ns), reverse=True)


def latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is intact; a corrupt one is named in the log and passed over."""
    for checkpoint in found(folder):
        if checkpoint.intact():
            return checkpoint
        log.warning("checkpoint %s is corrupt; going back to the one before", checkpoint.path.name)
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
