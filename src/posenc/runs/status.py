"""`status.json`: the state of a run, and the progress of a running job."""

import re
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from posenc.config.errors import RunError
from posenc.config.values import UNPRINTABLE, wrong_types
from posenc.runs.files import corrupt_file_error, read_mapping, write_json

State = Literal["pending", "running", "interrupted", "failed", "finished"]
WRITE_SECONDS = 1.0
"""The minimum time between two writes of a job's progress."""


@dataclass(frozen=True)
class ResolvedSettings:
    """Settings that a run resolves when its training starts; see `docs/runs.md` for resumed runs.

    They may change the last bits of a result, but are not part of a run's identity. `code` is a
    digest of the package's source, `threads` the number of CPU threads, `device` is cpu or cuda,
    and `processor` the model of that CPU or GPU. `kernel` names the attention kernel of each layer
    at the training length and the reason for its choice; `compile` is whether the model is
    compiled, and `compile_reason` why or why not. `micro_batch_tokens` is None if batches are not
    split. `parameters` is the model's parameter count.
    """

    code: str
    threads: int
    device: str
    processor: str
    kernel: str
    compile: bool
    compile_reason: str
    micro_batch_tokens: int | None
    parameters: int


RESOLVED_TYPES = {
    **get_type_hints(ResolvedSettings),
    "device": Literal["cpu", "cuda"],
}
MAX_THREADS = 4096
"""The largest number of threads in a status; with far more, PyTorch crashes."""
MAX_TIME = 253402300800
"""The start of the year 10000, in seconds since 1970; Python has no later dates."""


@dataclass(frozen=True)
class Status:
    """The contents of `status.json`.

    `work_done` is the completed fraction of training and evaluation together, and `seconds` is the
    total wall time across restarts. `compile_seconds` is the time that torch.compile took when the
    run was last started, if the model is compiled. `resolved` holds the `ResolvedSettings` as a
    mapping; it is empty before the first start. `metrics_digest` and `timing_digest` are the
    digests of the logs of a finished run.
    """

    state: State = "pending"
    error: str | None = None
    phase: Literal["training", "evaluation"] = "training"
    step: int = 0
    tokens: int = 0
    total_tokens: int = 0
    work_done: float = 0.0
    tokens_per_second: float | None = None
    started: float | None = None
    updated: float | None = None
    seconds: float = 0.0
    compile_seconds: float | None = None
    metrics_digest: str | None = None
    timing_digest: str | None = None
    resolved: dict[str, Any] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.state in ("finished", "failed")

    def replace(self, **changes: Any) -> "Status":
        return replace(self, **changes)

    def write(self, path: Path, *, durable: bool = True) -> None:
        write_json(path, asdict(self), durable=durable)

    @classmethod
    def read(cls, path: Path) -> "Status":
        """Read the status file `path`; if there is none, the run is pending.

        A corrupt file is reported as a failed run instead of an exception, so that commands on
        other runs continue. Unknown keys, which a later version may write, are ignored.
        """
        try:
            return cls.load(path)
        except RunError as reason:
            return cls(state="failed", error=f"{reason}, or rerun the command with retry=true")

    @classmethod
    def load(cls, path: Path) -> "Status":
        """Like `read`, but raises RunError if the file is corrupt."""
        saved = read_mapping(path, STATUS_TYPES)
        _check_numbers(path, saved)
        _check_resolved(path, saved.get("resolved", {}))
        error = saved.get("error")
        known = {key: value for key, value in saved.items() if key in STATUS_TYPES}
        return cls(**known | {"error": error and UNPRINTABLE.sub(" ", error)})


STATUS_TYPES = get_type_hints(Status)


def _check_numbers(path: Path, saved: dict[str, Any]) -> None:
    """Raise RunError for a time before 1970 or after 9999, or a fraction outside [0, 1]."""
    times = {key: saved[key] for key in ("started", "updated") if saved.get(key) is not None}
    if wrong := [key for key, seconds in times.items() if not 0 <= seconds < MAX_TIME]:
        raise corrupt_file_error(path, f"not a time: {', '.join(wrong)}")
    if not 0 <= saved.get("work_done", 0) <= 1:
        raise corrupt_file_error(path, "work_done is not a fraction")


def _check_resolved(path: Path, resolved: dict[str, Any]) -> None:
    """Raise RunError for a setting of the wrong type; earlier versions may have written fewer."""
    wrong = wrong_types(resolved, RESOLVED_TYPES)
    if "threads" in resolved and not wrong and not 1 <= resolved["threads"] <= MAX_THREADS:
        wrong = [f"threads (not from 1 to {MAX_THREADS})"]
    if "code" in resolved and not wrong and not re.fullmatch(r"[\w-]*", resolved["code"]):
        wrong = ["code (not a digest)"]
    if wrong:
        raise corrupt_file_error(path, f"wrong type or value in resolved: {', '.join(wrong)}")


class StatusWriter:
    """The status of a running job; only rank 0 writes `status.json`."""

    def __init__(self, path: Path, *, is_writer: bool = True) -> None:
        self.path, self.is_writer = path, is_writer
        self.status = Status.read(path)
        self._written = 0.0
        self._started = time.monotonic()
        self._seconds_before = self.status.seconds

    def update(self, **changes: Any) -> None:
        """Change the status, and write it if the last write was at least WRITE_SECONDS ago."""
        self.status = self.status.replace(**changes)
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self._write(durable=False)

    def write(self, **changes: Any) -> None:
        """Change the status and write it durably, without delay."""
        self.status = self.status.replace(**changes)
        self._write(durable=True)

    def _write(self, *, durable: bool) -> None:
        seconds = self._seconds_before + time.monotonic() - self._started
        self.status = self.status.replace(updated=time.time(), seconds=seconds)
        if self.is_writer:
            self.status.write(self.path, durable=durable)
        self._written = time.monotonic()
