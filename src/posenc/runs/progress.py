"""The running status of one run, written about once a second."""

import time
from typing import Any

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status

EVERY_SECONDS = 1.0


class Progress:
    """Keeps `status.json` current while a run works."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.status = Status.read(run.status_file)
        self._written = 0.0
        self._resumed = time.monotonic()
        self._seconds_before = self.status.seconds

    def update(self, **changes: Any) -> None:
        """Take note of `changes`; they reach the disk within a second of the next call."""
        self.status = self.status.but(**changes)
        if time.monotonic() - self._written >= EVERY_SECONDS:
            self._write(durable=False)

    def settle(self, **changes: Any) -> None:
        """Write `changes` at once, to stay."""
        self.status = self.status.but(**changes)
        self._write(durable=True)

    def _write(self, *, durable: bool) -> None:
        seconds = self._seconds_before + time.monotonic() - self._resumed
        self.status = self.status.but(updated=time.time(), seconds=seconds)
        self.status.write(self.run.status_file, durable=durable)
        self._written = time.monotonic()


class NoOpProgress(Progress):
    """Of a process whose group's first one writes the status."""

    def _write(self, *, durable: bool) -> None:
        pass
