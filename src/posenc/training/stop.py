"""Asking a run to end well: at the next step it checkpoints and is `interrupted`."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    """Set by SIGTERM or SIGINT, and by the death of `parent`, the process that started this one."""

    def __init__(self, parent: int) -> None:
        self._signalled = False
        self._parent = parent

    def asked(self) -> bool:
        return self._signalled or os.getppid() != self._parent

    def reason(self) -> str:
        return "stopped by a signal" if self._signalled else "its launcher died"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals in here; again after Lightning has put its own handlers in place."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        self._signalled = True
