"""How long a sweep still takes, from the pace at which its runs have gone."""

import heapq
from collections.abc import Sequence

SETTLED_SECONDS = 3.0
"""A pace is trusted once it has been measured for this long."""


class Pace:
    """How a run's work, from 0 to 1, has gone on since its process started at `now`.

    What it takes to get going is kept apart from the pace of the work itself, and work done in
    an earlier start counts for neither.
    """

    def __init__(self, now: float, work: float) -> None:
        self.began = now
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
        """Seconds until the work first moved."""
        return None if self._first is None else self._first[0] - self.began

    @property
    def measured(self) -> tuple[float, float]:
        """(work, seconds) over which the pace is known."""
        if self._first is None:
            return 0.0, 0.0
        return self.work - self._first[1], self._latest - self._first[0]

    @property
    def settled(self) -> bool:
        work, seconds = self.measured
        return work > 0 and seconds >= SETTLED_SECONDS


def time_left(
    active: Sequence[Pace],
    ended: Sequence[Pace],
    waiting: Sequence[float],
    workers: int,
    now: float,
) -> float | None:
    """Seconds until the last run ends, or None while nothing has been measured.

    `waiting` is the work done, from 0 to 1, of the runs not started yet. They are dealt to the
    `workers` one after the other, at the average pace of those that were measured.
    """
    known = [pace for pace in [*active, *ended] if pace.settled]
    if not known:
        return None
    per_work = sum(pace.measured[1] for pace in known) / sum(pace.measured[0] for pace in known)
    startup = sum(pace.startup or 0.0 for pace in known) / len(known)
    free_at = [_own_time_left(pace, per_work, startup, now) for pace in active]
    free_at += [0.0] * (workers - len(active))
    heapq.heapify(free_at)
    for work in waiting:
        heapq.heapreplace(free_at, free_at[0] + startup + (1 - work) * per_work)
    return max(free_at)


def run_time_left(pace: Pace) -> float | None:
    """Seconds until one run ends, at its own pace."""
    work, seconds = pace.measured
    return (1 - pace.work) * seconds / work if pace.settled else None


def _own_time_left(pace: Pace, per_work: float, startup: float, now: float) -> float:
    own = run_time_left(pace)
    if own is not None:
        return own
    ahead = max(0.0, startup - (now - pace.began)) if pace.startup is None else 0.0
    return ahead + (1 - pace.work) * per_work
