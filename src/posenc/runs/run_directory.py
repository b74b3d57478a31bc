"""The directory of a run and its files."""

import glob
import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError, RunError
from posenc.config.paths import OUTPUTS, experiment_names
from posenc.runs.evaluation_rows import read_evaluation, read_rows, write_rows
from posenc.runs.files import (
    RowsDigest,
    corrupt_file_error,
    read_jsonl,
    read_text,
    reject_special_files,
    walk_entries,
)
from posenc.runs.lock import is_locked
from posenc.runs.loss_arrays import read_blocks, read_position_losses
from posenc.runs.row_types import METRICS, NGRAMS, TIMING
from posenc.runs.saved_config import read_config
from posenc.runs.status import Status

MAX_LISTED = 5
STOPPED_EARLY = "stopped_early"
"""The key that marks the row of `metrics.jsonl` at which a callback ended the training."""


class RunDirectory:
    """`outputs/<experiment>/<run>/`: one run's configuration, logs, checkpoints and results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = os.fsencode(path.name).decode(errors="replace")
        self.config_file = path / "config.yaml"
        self.status_file = path / "status.json"
        self.metrics_file = path / "metrics.jsonl"
        self.timing_file = path / "timing.jsonl"
        self.evaluation_file = path / "evaluation.json"
        self.positions_file = path / "loss_by_position.npz"
        self.ngrams_file = path / "ngrams.json"
        self.blocks_file = path / "loss_by_block.npz"
        self.tokenizer_file = path / "tokenizer.json"
        self.checkpoints = path / "checkpoints"
        self.log_file = path / "run.log"
        self.lock_file = path / ".lock"

    def config(self) -> DictConfig:
        """Return `config_dict()` as a DictConfig, from which components are built."""
        return OmegaConf.create(self.config_dict())

    def config_dict(self, *, verify: bool = False) -> dict[str, Any]:
        """Return the checked configuration that planning wrote; see `read_config`.

        Raises RunError if it is corrupt, or if `reject_special_files` rejects a file of the run.
        """
        values = read_config(self.config_file, verify=verify)
        reject_special_files(walk_entries(self.path))
        return values

    def verified_config_dict(self) -> dict[str, Any]:
        """Return `config_dict()` of a run whose results are combined with those of other runs.

        Also raises RunError if `read_config` detects an edit, or the directory does not have the
        run's name.
        """
        values = self.config_dict(verify=True)
        self.check_name(values)
        return values

    def check_name(self, values: dict[str, Any]) -> None:
        """Raise RunError if the directory's name differs from the run's name in `config.yaml`.

        The directory could then be a copy of another run, which would be counted twice.
        """
        name = values["planned"]["run"]
        if name != self.path.absolute().name:
            raise RunError(
                f"{self.path} is not named after the run in its config.yaml; rename it to {name},"
                " or delete it if it is a copy"
            )

    def status(self) -> Status:
        """Read the status.

        A run marked as running is reported as interrupted if no process holds its lock. A run that
        has started, but whose `config.yaml` is missing, counts as failed.
        """
        status = Status.read(self.status_file)
        if status.started is not None and not self.config_file.exists():
            error = f"{self.config_file} is missing; rerun the command to recreate it"
            return status.replace(state="failed", error=error)
        try:
            if status.state == "running" and not is_locked(self.lock_file):
                error = status.error or "its process was killed"
                return status.replace(state="interrupted", error=error)
        except RunError as error:  # the lock is not a regular file
            return status.replace(state="failed", error=str(error))
        return status

    def has_results(self) -> bool:
        """Return whether the directory has results or checkpoints, regardless of its status."""
        files = (self.metrics_file, self.evaluation_file, self.ngrams_file)
        return any(file.exists() for file in files) or any(self.checkpoints.glob("*"))

    def set_aside_results(self, tokens: int) -> None:
        """Back up the evaluation results to `<name>.old`; keep those at up to `tokens` tokens.

        Training resumes from there, so the later results are from weights that it will replace.
        """
        with suppress(RunError):  # the file is corrupt
            rows = self.rows()
            kept = [row for row in rows if (row.get("at_tokens") or math.inf) <= tokens]
            if len(kept) == len(rows):
                return
            for file in (self.evaluation_file, self.positions_file, self.blocks_file):
                if file.exists():
                    shutil.copy2(file, file.with_name(f"{file.name}.old"))
            write_rows(self.evaluation_file, kept, self.config().planned.hash)

    def rows(self, run_hash: str | None = None) -> list[dict[str, Any]]:
        """Return the evaluation rows.

        Raises RunError if the file is corrupt, or has the hash of a run other than `run_hash`.
        """
        return read_evaluation(self.evaluation_file, run_hash)

    def ngrams(self, run_hash: str | None = None) -> list[dict[str, Any]]:
        """Return the losses of n-gram models. Raises RunError like `rows`."""
        return read_rows(self.ngrams_file, NGRAMS, owner=run_hash)

    def losses_by_position(self, rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
        """Return losses by position; `rows` are the evaluation rows. See `read_position_losses`."""
        return read_position_losses(self.positions_file, rows)

    def losses_by_block(self, rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
        """Return the losses by block; `rows` are the evaluation rows. See `read_blocks`."""
        return read_blocks(self.blocks_file, rows)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of the training log. Raises RunError if a row is corrupt."""
        rows = read_jsonl(self.metrics_file)
        METRICS.check(self.metrics_file, rows)
        return rows

    def check_logs(
        self, status: Status, metrics: Sequence[dict[str, Any]], timing: Sequence[dict[str, Any]]
    ) -> None:
        """Raise RunError if the logs have changed since the run finished.

        `timing.jsonl` may be missing.
        """
        if status.state != "finished":
            return
        retrain = f"delete {self.path} and rerun its command"
        expected = [(self.metrics_file, metrics, status.metrics_digest, retrain)]
        if timing:
            expected.append((self.timing_file, timing, status.timing_digest, "delete it"))
        for file, rows, digest, remedy in expected:
            if digest not in (None, RowsDigest(rows).short_hexdigest()):
                raise RunError(
                    f"{file} is not the log of this run (it is outdated, edited or from a different"
                    f" run); restore it, or {remedy}"
                )
        # A job that is killed after its last checkpoint may leave earlier numbers in its status.
        last_row = metrics[-1] if metrics else {}
        for key, value in (("step", status.step), ("tokens", status.tokens)):
            if value > last_row.get(key, value):
                raise RunError(
                    f"{self.status_file} has {key}={value}, but {self.metrics_file.name} ends at"
                    f" {last_row[key]}; restore it, or {retrain}"
                )

    def trained_steps(self, planned: int) -> int:
        """Return the last step of training: `planned`, or an earlier one if a callback ended it."""
        rows = self.metrics()[-1:]
        return rows[0]["step"] if rows and rows[0].get(STOPPED_EARLY) else planned

    def timing(self) -> list[dict[str, Any]]:
        """Return the rows of `timing.jsonl`. Raises RunError if a row is corrupt."""
        rows = read_jsonl(self.timing_file)
        TIMING.check(self.timing_file, rows)
        return rows

    def log_text(self) -> str:
        """Return the contents of `run.log`. Raises RunError if it cannot be read."""
        try:
            return read_text(self.log_file, errors="replace")
        except (OSError, ValueError) as error:
            raise corrupt_file_error(self.log_file, error) from None

    def last_log_line(self) -> str:
        """Return the last non-empty line of `run.log`, or the reason why it cannot be read."""
        try:
            lines = self.log_text().strip().split("\n")
        except RunError as error:
            return str(error)
        return lines[-1].strip() or "no output"


SelectRuns = Callable[[Sequence[RunDirectory]], Sequence[RunDirectory]]
"""A function that selects some of the runs of a folder."""


def open_run(path: Any) -> RunDirectory:
    """Return the run at `path`. Raises ConfigError if that is not a run directory."""
    if path is None:
        raise ConfigError("run is missing; set run=outputs/<experiment>/<run>")
    if not isinstance(path, str):
        raise ConfigError(f"run={path} is not a path; set run=outputs/<experiment>/<run>")
    run = RunDirectory(Path(path))
    if not run.config_file.is_file():
        raise ConfigError(f"run={path} is not a run directory (no config.yaml)")
    return run


def find_run(path: Any, outputs: Path = OUTPUTS) -> RunDirectory:
    """Return the run at `path`, or the only run whose path or name starts with `path`.

    Names are searched in all experiments of the folder `outputs`. Raises ConfigError if there is
    no such run, or more than one.
    """
    path = os.path.expanduser(path) if isinstance(path, str) else path  # reports print ~
    if not isinstance(path, str) or (Path(path) / "config.yaml").is_file():
        return open_run(path)
    prefix, folder = glob.escape(str(Path(path))), glob.escape(str(outputs))
    patterns = (prefix, f"{folder}/{prefix}", f"{folder}/*/{prefix}")
    files = {name for pattern in patterns for name in glob.glob(f"{pattern}*/config.yaml")}
    matches = sorted(str(Path(file).parent) for file in files)
    if len(matches) > 1:
        raise ambiguous_run_error(path, matches)
    if not matches and not Path(path).exists():
        names = join_first(experiment_names(outputs))
        raise ConfigError(
            f"run={path}: no run in {outputs} has this prefix (experiments there: {names})"
        )
    return open_run(matches[0] if matches else path)


def ambiguous_run_error(path: str, matches: Sequence[str]) -> ConfigError:
    """Return the error for a prefix that matches several runs."""
    return ConfigError(
        f"run={path} matches {len(matches)} runs ({join_first(matches)}); specify one"
    )


def join_first(names: Sequence[str]) -> str:
    """Return the first few names, followed by an ellipsis if there are more; "none" if empty."""
    return ", ".join(names[:MAX_LISTED]) + ", ..." * (len(names) > MAX_LISTED) or "none"


def list_runs(folder: Path) -> list[RunDirectory]:
    """Return the runs in an experiment's folder, sorted by name, without unfinished copies."""
    return [RunDirectory(file.parent) for file in sorted(folder.glob("[!.]*/config.yaml"))]
