"""Being asked to stop: once to end well, twice to end now."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SAME_SECONDS = 0.5
"""Signals closer together are one request: some senders reach process and group."""


@contextmanager
def interruptions() -> Iterator[Sequence[float]]:
    """The times at which SIGINT, SIGTERM or SIGHUP came since entering, instead of their effects.

    A signal that this process was started to ignore (nohup) stays ignored.
    """
    received: list[float] = []

    def receive(number: int, frame: object) -> None:
        if not received or time.monotonic() - received[-1] > SAME_SECONDS:
            received.append(time.monotonic())

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number in numbers if before[number] is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        for number in heard:
            signal.signal(number, before[number])
