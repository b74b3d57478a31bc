"""Estimates of the time left in a sweep, from the pace of its runs."""

import heapq
from collections.abc import Sequence

MIN_RELIABLE_SECONDS = 3.0
"""How long a pace must have been measured before it is used, in seconds."""


class Pace:
    """The pace of a run since its process started at time `now`.

    `work` is the completed fraction of the run (0 to 1). Start-up time is measured separately, and
    progress made before this start is excluded.
    """

    def __init__(self, now: float, work: float) -> None:
        self.started = now
        self.work = work
        self._first_progress: tuple[float, float] | None = None
        self._latest = now

    def observe(self, now: float, work: float) -> None:
        self._latest = now
        if self._first_progress is None and work != self.work:
            self._first_progress = (now, work)
        self.work = work

    @property
    def startup_seconds(self) -> float | None:
        """Seconds until the first progress, or None if there is none yet."""
        return None if self._first_progress is None else self._first_progress[0] - self.started

    @property
    def measured_progress(self) -> tuple[float, float]:
        """The work done since the first observed progress, and the seconds that it took."""
        if self._first_progress is None:
            return 0.0, 0.0
        return self.work - self._first_progress[1], self._latest - self._first_progress[0]

    @property
    def is_reliable(self) -> bool:
        work, seconds = self.measured_progress
        return work > 0 and seconds >= MIN_RELIABLE_SECONDS


def time_left(
    active: Sequence[Pace],
    ended: Sequence[Pace],
    waiting: Sequence[float],
    workers: int,
    now: float,
) -> float | None:
    """Return the seconds until the last run ends, or None while no pace is reliable.

    `waiting` holds the completed fraction of each run that waits for a worker; it is above 0 for a
    run that will resume. The estimate assigns each waiting run to the first free worker, at the
    average of the reliable paces.
    """
    reliable = [pace for pace in [*active, *ended] if pace.is_reliable]
    if not reliable:
        return None
    measured = [pace.measured_progress for pace in reliable]
    seconds_per_run = sum(seconds for _, seconds in measured) / sum(work for work, _ in measured)
    startup = sum(pace.startup_seconds or 0.0 for pace in reliable) / len(reliable)
    free_at = [_active_time_left(pace, seconds_per_run, startup, now) for pace in active]
    free_at += [0.0] * (workers - len(active))
    heapq.heapify(free_at)
    for work_done in waiting:
        heapq.heapreplace(free_at, free_at[0] + startup + (1 - work_done) * seconds_per_run)
    return max(free_at)


def run_time_left(pace: Pace) -> float | None:
    """Return the seconds until a run ends at its measured pace, or None if that is unreliable."""
    work, seconds = pace.measured_progress
    return (1 - pace.work) * seconds / work if pace.is_reliable else None


def _active_time_left(pace: Pace, seconds_per_run: float, startup: float, now: float) -> float:
    seconds = run_time_left(pace)
    if seconds is not None:
        return seconds
    startup_left = max(0.0, startup - (now - pace.started)) if pace.startup_seconds is None else 0.0
    return startup_left + (1 - pace.work) * seconds_per_run
