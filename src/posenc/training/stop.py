"""Requests to stop a run. Training first finishes the current step and saves a checkpoint.

The module does not import torch, because a job that exits early or only starts its ranks does not
need this slow import.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """Raised by a signal inside `StopRequest.raising_on_signal`."""


class StopRequest:
    """A request to stop, triggered by SIGTERM, SIGINT or the death of the launcher."""

    def __init__(self, launcher_alive: Callable[[], bool]) -> None:
        self._signaled = self._raises = False
        self._launcher_alive = launcher_alive

    def requested(self) -> bool:
        """Return whether the run should stop."""
        return self._signaled or not self._launcher_alive()

    def reason(self) -> str:
        """Return why the run was stopped, for its status."""
        return "stopped by a signal" if self._signaled else "its launcher died"

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

    @contextmanager
    def raising_on_signal(self) -> Iterator[None]:
        """Raise Stopped at the first signal inside the context, for work that has no steps.

        Raises Stopped immediately if a signal has already arrived.
        """
        self._raises = True
        try:
            if self._signaled:
                raise Stopped
            yield
        finally:
            self._raises = False

    def install_handlers(self) -> None:
        """Handle the signals from now on; also replaces handlers that Lightning has installed."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        self._signaled, raises = True, self._raises
        if raises:
            self._raises = False
            raise Stopped
