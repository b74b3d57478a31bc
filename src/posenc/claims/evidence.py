"""What claims are judged on, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Row = Mapping[str, Any]


class Run(Protocol):
    """One run: its frozen configuration, its evaluation rows (none until its training is over)
    and the lines of its timing.jsonl."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def timing(self) -> Sequence[Row]: ...


@dataclass(frozen=True)
class Evidence:
    """The runs of an experiment; `command` planned them, `folder` holds them."""

    runs: Sequence[Run]
    command: str
    folder: str
