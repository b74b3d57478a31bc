"""`status.json`: the state of a run, and the progress that a running job writes to it."""

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from posenc.runs.files import read_json, write_json

State = Literal["pending", "running", "interrupted", "failed", "finished"]
WRITE_SECONDS = 1.0
"""Progress is written at most this often."""


@dataclass(frozen=True)
class ResolvedSettings:
    """Settings that a run resolves when its training starts and keeps when it resumes.

    They may change the last bits of a result, but are not part of a run's identity. `code` is a
    digest of the package's source, `threads` the number of CPU threads, `device` cpu or cuda,
    `kernel` the attention kernel of each layer with its reason, `micro_batch_tokens` None for a
    whole batch, `parameters` the model's parameter count.
    """

    code: str
    threads: int
    device: str
    kernel: str
    micro_batch_tokens: int | None
    parameters: int


@dataclass(frozen=True)
class Status:
    """The content of `status.json`.

    `work_done` is the completed fraction of training and evaluation together, `seconds` the wall
    time over all starts. `resolved` is the `ResolvedSettings` as a mapping, empty before the first
    start.
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
    resolved: dict[str, Any] = field(default_factory=dict)

    def replace(self, **changes: Any) -> "Status":
        return replace(self, **changes)

    def write(self, path: Path, *, durable: bool = True) -> None:
        write_json(path, asdict(self), durable=durable)

    @classmethod
    def read(cls, path: Path) -> "Status":
        """Read the status at `path`; a run without one is pending."""
        return cls(**read_json(path)) if path.exists() else cls()


class Progress:
    """Keeps a run's status current while its job works; only rank 0 `writes` it."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.status = Status.read(path)
        self._written = 0.0
        self._started = time.monotonic()
        self._seconds_before = self.status.seconds

    def update(self, **changes: Any) -> None:
        """Change the status; it reaches the disk within a second of the next call."""
        self.status = self.status.replace(**changes)
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self._write(durable=False)

    def write(self, **changes: Any) -> None:
        """Change the status and write it durably at once."""
        self.status = self.status.replace(**changes)
        self._write(durable=True)

    def _write(self, *, durable: bool) -> None:
        seconds = self._seconds_before + time.monotonic() - self._started
        self.status = self.status.replace(updated=time.time(), seconds=seconds)
        if self.writes:
            self.status.write(self.path, durable=durable)
        self._written = time.monotonic()
