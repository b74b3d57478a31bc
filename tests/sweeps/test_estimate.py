"""The estimate beside sweeps played through in steps of a second."""

from dataclasses import dataclass, field

import pytest

from posenc.sweeps.time_left import Pace, run_time_left, time_left

STARTUP = 6.0


@dataclass
class Played:
    """A sweep of runs that each take `seconds` for all their work after a start of `STARTUP`."""

    seconds: list[float]
    begun: list[float]
    workers: int
    now: float = 0.0
    active: dict[int, tuple[float, Pace]] = field(default_factory=dict)
    ended: list[Pace] = field(default_factory=list)
    started: int = 0

    def tick(self) -> None:
        while len(self.active) < self.workers and self.started < len(self.seconds):
            pace = Pace(self.now, self.begun[self.started])
            self.active[self.started] = (self.now, pace)
            self.started += 1
        self.now += 1.0
        for i, (since, pace) in list(self.active.items()):
            gone = max(0.0, self.now - since - STARTUP)
            pace.observe(self.now, min(1.0, self.begun[i] + gone / self.seconds[i]))
            if pace.work == 1.0:
                self.ended.append(self.active.pop(i)[1])

    def estimate(self) -> float | None:
        paces = [pace for _, pace in self.active.values()]
        return time_left(paces, self.ended, self.begun[self.started :], self.workers, self.now)

    def play(self) -> list[tuple[float, float | None]]:
        """(seconds that it took from here, what was estimated) at every second."""
        estimates = []
        while self.active or self.started < len(self.seconds):
            self.tick()
            estimates.append((self.now, self.estimate()))
        return [(self.now - now, estimate) for now, estimate in estimates]


@pytest.mark.parametrize(
    ("runs", "workers", "begun"),
    [(1, 1, 0.0), (8, 2, 0.0), (7, 3, 0.0), (2, 4, 0.0), (8, 2, 0.6), (3, 2, 0.9)],
)
def test_runs_of_one_length_are_foreseen(runs: int, workers: int, begun: float) -> None:
    played = Played([100.0] * runs, [begun] * runs, workers).play()
    judged = [(true, guess) for true, guess in played if guess is not None]
    assert len(played) - len(judged) <= STARTUP + 4
    for true, guess in judged:
        assert guess == pytest.approx(true, abs=2.0 + 0.03 * true)


def test_runs_of_different_length_are_foreseen_roughly() -> None:
    played = Played([60.0, 180.0] * 4, [0.0] * 8, 2).play()
    for true, guess in played[60:-30]:
        assert guess is not None and 0.5 * true < guess < 2 * true


def test_work_of_an_earlier_start_is_not_speed() -> None:
    pace = Pace(0.0, 0.6)
    for second in range(30):
        pace.observe(float(second), 0.6 + max(0, second - 9) * 0.01)
    assert run_time_left(pace) == pytest.approx((1 - 0.8) / 0.01)


def test_a_run_set_back_to_its_checkpoint_counts_from_there() -> None:
    pace = Pace(0.0, 0.6)
    pace.observe(5.0, 0.5)
    pace.observe(15.0, 0.6)
    assert run_time_left(pace) == pytest.approx(40.0)


def test_nothing_is_promised_before_anything_is_measured() -> None:
    pace = Pace(0.0, 0.0)
    pace.observe(10.0, 0.0)
    assert time_left([pace], [], [0.0], 1, 10.0) is None
    assert run_time_left(pace) is None
