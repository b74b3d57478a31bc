"""An estimate of the time that a sweep still takes, from the pace of its runs."""

import heapq
from collections.abc import Sequence

RELIABLE_SECONDS = 3.0
"""A pace is used once it has been measured for this long."""


class Pace:
    """The progress of a run, from 0 to 1, since its process started at time `now`.

    Start-up time is kept apart from the pace of the work itself; `work` that an earlier start has
    done counts for neither.
    """

    def __init__(self, now: float, work: float) -> None:
        self.started = now
        self.work = work
        self._first: tuple[float, float] | None = None
        self._latest = now

    def observe(self, now: float, work: float) -> None:
        self._latest = now
        if self._first is None and work != self.work:
            self._first = (now, work)
        self.work = work

    @property
    def startup(self) -> float | None:
        """Seconds until the first progress."""
        return None if self._first is None else self._first[0] - self.started

    @property
    def measured(self) -> tuple[float, float]:
        """The (work, seconds) from which the pace is known."""
        if self._first is None:
            return 0.0, 0.0
        return self.work - self._first[1], self._latest - self._first[0]

    @property
    def reliable(self) -> bool:
        work, seconds = self.measured
        return work > 0 and seconds >= RELIABLE_SECONDS


def time_left(
    active: Sequence[Pace],
    ended: Sequence[Pace],
    waiting: Sequence[float],
    workers: int,
    now: float,
) -> float | None:
    """Return the seconds until the last run ends, or None while nothing has been measured.

    `waiting` has the completed fraction of each run that is not started. They are assigned to the
    `workers` in turn, at the average pace of the measured runs.
    """
    known = [pace for pace in [*active, *ended] if pace.reliable]
    if not known:
        return None
    per_work = sum(pace.measured[1] for pace in known) / sum(pace.measured[0] for pace in known)
    startup = sum(pace.startup or 0.0 for pace in known) / len(known)
    free_at = [_active_time_left(pace, per_work, startup, now) for pace in active]
    free_at += [0.0] * (workers - len(active))
    heapq.heapify(free_at)
    for work in waiting:
        heapq.heapreplace(free_at, free_at[0] + startup + (1 - work) * per_work)
    return max(free_at)


def run_time_left(pace: Pace) -> float | None:
    """Return the seconds until one run ends, at its own pace."""
    work, seconds = pace.measured
    return (1 - pace.work) * seconds / work if pace.reliable else None


def _active_time_left(pace: Pace, per_work: float, startup: float, now: float) -> float:
    seconds = run_time_left(pace)
    if seconds is not None:
        return seconds
    starting = max(0.0, startup - (now - pace.started)) if pace.startup is None else 0.0
    return starting + (1 - pace.work) * per_work
