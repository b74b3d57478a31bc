"""The estimate of the time left in simulated sweeps, second by second."""

from dataclasses import dataclass, field

import pytest

from posenc.sweeps.time_left import Pace, run_time_left, time_left

STARTUP = 6.0


@dataclass
class SimulatedSweep:
    """A sweep of runs that each take `STARTUP` and then `seconds` for all their work.

    `initial_work` is the fraction of each run's work that is done before the sweep starts.
    """

    seconds: list[float]
    initial_work: list[float]
    workers: int
    now: float = 0.0
    active: dict[int, tuple[float, Pace]] = field(default_factory=dict)
    ended: list[Pace] = field(default_factory=list)
    started: int = 0

    def tick(self) -> None:
        while len(self.active) < self.workers and self.started < len(self.seconds):
            pace = Pace(self.now, self.initial_work[self.started])
            self.active[self.started] = (self.now, pace)
            self.started += 1
        self.now += 1.0
        for i, (started, pace) in list(self.active.items()):
            worked = max(0.0, self.now - started - STARTUP)
            pace.observe(self.now, min(1.0, self.initial_work[i] + worked / self.seconds[i]))
            if pace.work == 1.0:
                self.ended.append(self.active.pop(i)[1])

    def estimate(self) -> float | None:
        paces = [pace for _, pace in self.active.values()]
        return time_left(
            paces, self.ended, self.initial_work[self.started :], self.workers, self.now
        )

    def run(self) -> list[tuple[float, float | None]]:
        """Return (the true seconds left, the estimate) at every second."""
        estimates = []
        while self.active or self.started < len(self.seconds):
            self.tick()
            estimates.append((self.now, self.estimate()))
        return [(self.now - now, estimate) for now, estimate in estimates]


@pytest.mark.parametrize(
    ("runs", "workers", "initial_work"),
    [(1, 1, 0.0), (8, 2, 0.0), (7, 3, 0.0), (2, 4, 0.0), (8, 2, 0.6), (3, 2, 0.9)],
)
def test_the_estimate_is_accurate_for_runs_of_equal_length(
    runs: int, workers: int, initial_work: float
) -> None:
    estimates = SimulatedSweep([100.0] * runs, [initial_work] * runs, workers).run()
    known = [(true, estimate) for true, estimate in estimates if estimate is not None]
    assert len(estimates) - len(known) <= STARTUP + 4
    for true, estimate in known:
        assert estimate == pytest.approx(true, abs=2.0 + 0.03 * true)


def test_the_estimate_is_within_a_factor_of_two_for_runs_of_different_length() -> None:
    estimates = SimulatedSweep([60.0, 180.0] * 4, [0.0] * 8, 2).run()
    for true, estimate in estimates[60:-30]:
        assert estimate is not None and 0.5 * true < estimate < 2 * true


def test_work_of_an_earlier_start_does_not_count_towards_the_pace() -> None:
    pace = Pace(0.0, 0.6)
    for second in range(30):
        pace.observe(float(second), 0.6 + max(0, second - 9) * 0.01)
    assert run_time_left(pace) == pytest.approx((1 - 0.8) / 0.01)


def test_a_run_that_resumes_from_an_older_checkpoint_is_measured_from_there() -> None:
    pace = Pace(0.0, 0.6)
    pace.observe(5.0, 0.5)
    pace.observe(15.0, 0.6)
    assert run_time_left(pace) == pytest.approx(40.0)


def test_there_is_no_estimate_before_the_first_measurement() -> None:
    pace = Pace(0.0, 0.0)
    pace.observe(10.0, 0.0)
    assert time_left([pace], [], [0.0], 1, 10.0) is None
    assert run_time_left(pace) is None
