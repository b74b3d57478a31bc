"""Checkpoints named by step and digest, so that a partial or corrupt file is never used.

A run resumes from `step-<optimizer steps>-<digest>.ckpt`. `weights-<optimizer steps>-<digest>.ckpt`
contains only the weights, for evaluating the model before the end of training.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch

from posenc.config.errors import RunError, first_line
from posenc.runs.files import RowsDigest, file_sha256, flush_to_disk, is_sparse
from posenc.runs.run_directory import RunDirectory
from posenc.training.pickle_size import check_checkpoint

log = logging.getLogger(__name__)
CHECKPOINT_NAME = re.compile(r"(?:step|weights)-(\d+)-([0-9a-f]{16})\.ckpt")
NUM_KEPT = 2
RUN_HASH = "run_hash"
"""The key of a checkpoint that holds the hash of its run."""
GLOBAL_STEP = "global_step"
"""The key of a checkpoint under which Lightning saves the number of optimizer steps."""
METRICS_DIGEST = "metrics_digest"
"""The key of a checkpoint that holds the digest of `metrics.jsonl` up to its step."""

TRAINING_STATE: dict[str, tuple[type, int]] = {
    GLOBAL_STEP: (int, 0),
    "pytorch-lightning_version": (str, 0),
    "loops": (dict, 0),
    "callbacks": (dict, 0),
    "optimizer_states": (list, 1),
    "lr_schedulers": (list, 1),
}
"""Key that Lightning needs to resume -> the type and the number of items (0: any) of its value."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint or weights file after `step` optimizer steps.

    `digest` is a hash of its contents.
    """

    path: Path
    step: int
    digest: str

    def is_intact(self) -> bool:
        """Return whether the contents of the file match the digest in its name."""
        if not self.path.is_file() or is_sparse(self.path):
            return False
        return file_sha256(self.path)[:16] == self.digest

    def load(self, run_hash: str | None = None, *, mmap: bool = False) -> dict[str, Any]:
        """Return the contents, loaded without running code from the file.

        With `mmap`, tensors are read from disk only if they are used. Raises RunError if the file
        contains anything other than tensors and plain values, or more values than
        `check_checkpoint` allows, if its step count does not match its filename, or if the hash
        of the run that saved it is not `run_hash`. If `run_hash` is None, or if the file is from an
        earlier version and has no hash, the hash is not checked. Raises OSError if the file cannot
        be read.
        """
        try:
            check_checkpoint(self.path)
            contents = torch.load(self.path, map_location="cpu", weights_only=True, mmap=mmap)
        except OSError:  # the file could not be read, which does not mean that it is corrupt
            raise
        except Exception as error:  # corrupt bytes can make torch.load raise anything
            raise self.load_error(error) from error
        if not isinstance(contents, dict) or not isinstance(contents.get("state_dict"), dict):
            raise self.load_error(KeyError("state_dict"))
        if contents.get(GLOBAL_STEP) not in (None, self.step):
            reason = f"it was saved after step {contents[GLOBAL_STEP]} and has been renamed"
            raise self.load_error(ValueError(reason))
        saved_by = contents.get(RUN_HASH)  # None in older checkpoints
        if None not in (saved_by, run_hash) and saved_by != run_hash:
            reason = f"it was saved by the run with hash {saved_by}, not {run_hash}"
            raise self.load_error(ValueError(reason))
        return contents

    def check_training_state(self, run_hash: str) -> None:
        """Raise RunError where `load` does, or if anything needed to resume is missing."""
        contents = self.load(run_hash)
        for key, (expected, size) in TRAINING_STATE.items():
            value = contents.get(key)
            if not isinstance(value, expected) or (size and len(value) != size):
                raise self.load_error(ValueError(f"{key} is missing or invalid"))

    def weights(self, run_hash: str | None = None) -> dict[str, torch.Tensor]:
        """Return the state_dict of the model. Raises RunError where `load` does."""
        state = self.load(run_hash)["state_dict"]
        return {str(name).removeprefix("model."): value for name, value in state.items()}

    def check_metrics(self, run: RunDirectory) -> None:
        """Raise RunError if the rows of `metrics.jsonl` up to this step have changed.

        Compares their digest with the one in the checkpoint. Checkpoints from earlier versions do
        not contain a digest and are not checked.
        """
        rows = [row for row in run.metrics() if row["step"] <= self.step]
        if self.load(mmap=True).get(METRICS_DIGEST) not in (
            None,
            RowsDigest(rows).short_hexdigest(),
        ):
            raise RunError(
                f"the rows of {run.metrics_file} up to step {self.step} have changed since"
                f" {self.path.name} was saved; restore the file, or delete {run.path} and train"
                f" again"
            )

    def check_is_final(self, run: RunDirectory, run_hash: str) -> None:
        """Raise RunError if the finished run's metrics do not match this checkpoint."""
        digests = self.load(run_hash, mmap=True).get(METRICS_DIGEST), run.status().metrics_digest
        if None not in digests and digests[0] != digests[1]:
            raise RunError(
                f"{self.path} is not the final checkpoint of {run.name}; restore the"
                f" original file, or delete {run.path} and train again"
            )

    def load_error(self, error: Exception) -> RunError:
        """Return the error for a file with a checkpoint's name that this run cannot use."""
        # The rest of torch.load's message suggests weights_only=False, which runs code in the file.
        reason = first_line(error).split(". ")[0]
        return RunError(
            f"{self.path} is not a checkpoint of this run ({type(error).__name__}: {reason}); no"
            f" code from it was run; delete it or move it elsewhere"
        )


def save_checkpoint(folder: Path, step: int, write: Callable[[Path], None]) -> Checkpoint:
    """Save a checkpoint atomically and keep only the newest two.

    `write` fills a temporary file, which is renamed once it is on disk. Checkpoints from later
    steps are removed, too: the run could not resume from them, because they or the metrics were
    corrupt.
    """
    checkpoint = _write_file(folder, "step", step, write)
    checkpoints = list_checkpoints(folder)
    kept = [checkpoint for checkpoint in checkpoints if checkpoint.step <= step][:NUM_KEPT]
    for old in checkpoints:
        if old not in kept:
            _remove_file(old.path)
    return checkpoint


def save_weights(folder: Path, step: int, write: Callable[[Path], None]) -> Checkpoint:
    """Save the weights of a step atomically, replacing any that were saved for it before."""
    weights = _write_file(folder, "weights", step, write)
    for other in list_weights(folder):
        if other.step == step and other != weights:
            _remove_file(other.path)
    return weights


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints in a folder, newest first, without reading them."""
    return _list_files(folder, "step")


def list_weights(folder: Path) -> list[Checkpoint]:
    """Return the weights files in a folder, newest first, without reading them."""
    return _list_files(folder, "weights")


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest intact checkpoint; corrupt ones are logged and skipped."""
    return next(_intact_checkpoints(folder), None)


def resumable_checkpoint(run: RunDirectory) -> Checkpoint | None:
    """Return the newest intact checkpoint with a row in `metrics.jsonl` for each of its steps.

    Returns None if there is no intact checkpoint, so that training starts from step 0. Raises
    RunError if every intact checkpoint covers steps whose rows are missing, incomplete or out of
    order, or if the rows up to that checkpoint have changed since it was saved.
    """
    rows = [row for row in run.metrics() if {"tokens", "loss"} <= row.keys()]
    steps = zip(count(1), [*(row["step"] for row in rows), None], strict=False)
    first_missing = next(expected for expected, step in steps if step != expected)
    checkpoint = None
    for checkpoint in _intact_checkpoints(run.checkpoints):
        if checkpoint.step < first_missing:
            checkpoint.check_metrics(run)
            return checkpoint
        log.warning(
            "checkpoint %s is not used, because %s has no row for step %d",
            checkpoint.path.name,
            run.metrics_file.name,
            first_missing,
        )
    if checkpoint is not None:
        raise RunError(
            f"{run.metrics_file} has no row for step {first_missing}, but the oldest intact"
            f" checkpoint is from step {checkpoint.step}; restore the file, or delete {run.path}"
            f" and train again"
        )
    if list_checkpoints(run.checkpoints):
        log.warning("no checkpoint is intact; training starts from step 0")
    return None


def _intact_checkpoints(folder: Path) -> Iterator[Checkpoint]:
    """Yield the intact checkpoints, newest first; corrupt ones are logged."""
    for checkpoint in list_checkpoints(folder):
        if checkpoint.is_intact():
            yield checkpoint
        else:
            log.warning("checkpoint %s is corrupt and is not used", checkpoint.path.name)


def find_weights(folder: Path, step: int) -> Checkpoint | None:
    """Return the intact weights that `save_weights` saved for a step, or None."""
    return next((w for w in list_weights(folder) if w.step == step and w.is_intact()), None)


def _remove_file(path: Path) -> None:
    """Remove a file or link, but not a folder, which posenc cannot have created."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)


def _write_file(folder: Path, prefix: str, step: int, write: Callable[[Path], None]) -> Checkpoint:
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("writing-*.ckpt"):  # left by a process that was killed
        leftover.unlink()
    temporary = folder / f"writing-{os.getpid()}.ckpt"
    try:
        write(temporary)
        flush_to_disk(temporary)
        digest = file_sha256(temporary)[:16]
        checkpoint = Checkpoint(folder / f"{prefix}-{step:09d}-{digest}.ckpt", step, digest)
        os.replace(temporary, checkpoint.path)
    finally:
        temporary.unlink(missing_ok=True)
    return checkpoint


def _list_files(folder: Path, prefix: str) -> list[Checkpoint]:
    paths = folder.glob(f"{prefix}-*.ckpt")
    matches = [(path, CHECKPOINT_NAME.fullmatch(path.name)) for path in paths]
    files = [Checkpoint(path, int(match[1]), match[2]) for path, match in matches if match]
    modified: dict[Checkpoint, int] = {}
    for file in files:
        with suppress(FileNotFoundError):  # the run has deleted it since
            modified[file] = file.path.lstat().st_mtime_ns
    return sorted(modified, key=lambda file: (file.step, modified[file]), reverse=True)
