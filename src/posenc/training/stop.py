"""Requests to stop: at the next step the run saves a checkpoint and ends as `interrupted`.

Imports no torch, so that a job can watch for signals while its other imports still run.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Set by SIGTERM or SIGINT, and by the death of the parent process with the id `parent`."""

    def __init__(self, parent: int) -> None:
        self._signalled = False
        self._parent = parent

    def requested(self) -> bool:
        """Return whether the run should stop."""
        return self._signalled or os.getppid() != self._parent

    def reason(self) -> str:
        """Return why the run was stopped, for its status."""
        return "stopped by a signal" if self._signalled else "its launcher died"

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle the signals inside the context, and restore the previous handlers after it."""
        previous = {number: signal.getsignal(number) for number in SIGNALS}
        self.install_handlers()
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def install_handlers(self) -> None:
        """Handle the signals from now on, also after Lightning has installed its own handlers."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        self._signalled = True
