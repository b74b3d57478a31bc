"""What state a run is in: `status.json`, the file that tells the truth when exit codes lie."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from posenc.runs.files import read_json, write_json

State = Literal["pending", "running", "interrupted", "failed", "finished"]


@dataclass(frozen=True)
class ResolvedSettings:
    """What a run resolved when its training began, which is kept when it resumes.

    These settings may change the last bits of a result, but are not part of a run's identity.
    `code` is a digest of the package's source, `threads` the number of CPU threads, `device` cpu or
    cuda, `micro_batch_tokens` None for a whole batch, `parameters` the model's parameter count.
    """

    code: str
    threads: int
    device: str
    kernel: str
    micro_batch_tokens: int | None
    parameters: int


@dataclass(frozen=True)
class Status:
    """One reading of `status.json`.

    `work_done` is the share of training and evaluation together, from 0 to 1; `seconds` the wall
    time spent so far over all starts; `resolved` the `ResolvedSettings` as a mapping, empty before
    the first start.
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

    def but(self, **changes: Any) -> "Status":
        return replace(self, **changes)

    def write(self, path: Path, *, durable: bool = True) -> None:
        write_json(path, asdict(self), durable=durable)

    @classmethod
    def read(cls, path: Path) -> "Status":
        """The status at `path`; a run that has written none yet is pending."""
        return cls(**read_json(path)) if path.exists() else cls()
