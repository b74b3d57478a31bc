"""The default launcher: processes on this machine, a few at a time."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from posenc.config.errors import ConfigError
from posenc.runs.lock import is_locked
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.estimate import Pace, time_left
from posenc.sweeps.forks import JOB, starter_of
from posenc.sweeps.freeze import frozen
from posenc.sweeps.interrupts import interruptions
from posenc.sweeps.lines import ending, farewell, under_way
from posenc.sweeps.machine import cores, gpus, together
from posenc.sweeps.process import JobProcess
from posenc.sweeps.progress import Snapshot, View, clock, percent, view_on
from posenc.sweeps.ranks import devices_of

STARTS = 4
"""How often one launch starts a run whose process is killed, as the kernel does for memory."""


class Pool:
    """Runs up to `jobs` runs side by side: one for each GPU, or as many as there are cores; of runs
    on several devices as many as find theirs.

    The cores are shared out among them as threads. `command` starts a run in place of the
    module `posenc.sweeps.job`.
    """

    def __init__(
        self,
        jobs: int | None = None,
        *,
        console: Console | None = None,
        command: Sequence[str] | None = None,
        poll_seconds: float = 0.2,
    ) -> None:
        if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
            raise ConfigError(f"jobs={jobs} at a time; give hydra.launcher.jobs=1 or more, or null")
        self.jobs = jobs
        self.console = console or Console(stderr=True)
        self.command = command or JOB
        self.poll_seconds = poll_seconds

    def launch(self, jobs: Sequence[Sequence[str]], finished: int = 0) -> dict[str, Status]:
        """See every job to its end; how each run ended, by name.

        A job is the arguments of its process, the run directory first. `finished` more runs of
        the same sweep are done already and count in the view. A failure stops nothing else; a run
        whose process is killed is started again. A run that another process has is waited for.
        Ctrl-C (or SIGTERM) asks the runs to write a checkpoint and end, waits for them and then
        raises KeyboardInterrupt; a second one kills them.
        """
        view = view_on(self.console)
        try:
            with interruptions() as interrupts:
                launch = _Launch(self, jobs, finished, view)
                launch.to_the_end(interrupts)
        finally:
            view.close()
        if interrupts:
            raise KeyboardInterrupt
        return launch.outcomes


class _Waiting(NamedTuple):
    run: RunDirectory
    arguments: Sequence[str]
    work: float


class _Launch:
    """One call of `Pool.launch`: who waits, who runs where, who has ended."""

    def __init__(
        self, pool: Pool, jobs: Sequence[Sequence[str]], finished: int, view: View
    ) -> None:
        self.pool, self.view = pool, view
        self.before, self.total = finished, finished + len(jobs)
        self.waiting = deque(_waiting(job) for job in jobs)
        self.devices = max((devices_of(RunDirectory(Path(job[0]))) for job in jobs), default=1)
        self.gpus = together(gpus(), self.devices)
        places = len(self.gpus) or max(1, cores() // self.devices)
        self.workers = min(pool.jobs or places, max(1, len(jobs)))
        side_by_side = min(pool.jobs or places, max(1, self.total))  # as when none was finished
        self.threads = max(1, cores() // side_by_side)
        self.slots = list(range(self.workers))[::-1]
        self.active: dict[JobProcess, tuple[int, Pace]] = {}
        self.ended: list[Pace] = []
        self.outcomes: dict[str, Status] = {}
        self.starts: Counter[str] = Counter()
        self.elsewhere: set[str] = set()
        self.code = frozen(Path(jobs[0][0]).parent) if jobs else None
        self.starter = starter_of(pool.command, self.gpus, self.code) if jobs else None

    def to_the_end(self, interrupts: Sequence[float]) -> None:
        began, heeded = time.monotonic(), 0
        self._say_plan()
        try:
            while self.waiting or self.active:
                if len(interrupts) > heeded:
                    heeded = len(interrupts)
                    self._stop(kill=heeded > 1)
                self._fill()
                self.view.show(self._snapshot())
                time.sleep(self.pool.poll_seconds)
                self._reap(again=not interrupts)
        finally:
            for process in self.active:
                process.terminate()
            for process in self.active:
                process.wait()
            if self.starter:
                self.starter.close()
        self._say_end(time.monotonic() - began)

    def _fill(self) -> None:
        while self.slots and (waiting := self._next()):
            run, arguments, work = waiting
            try:
                process = self._start(run, arguments)
            except OSError as error:
                self._conclude(run, Status(state="failed", error=f"it cannot be started: {error}"))
                continue
            self.active[process] = (self.slots.pop(), Pace(time.monotonic(), work))
            self.view.note(f"▶ {run.name}  started{f' at {percent(work)}' if work else ''}")

    def _next(self) -> "_Waiting | None":
        """The first that waits for a process; what another process has ended is taken as it is."""
        for waiting in list(self.waiting):
            run = waiting.run
            if is_locked(run.lock_file):
                self._say_elsewhere(run)
                continue
            self.waiting.remove(waiting)
            if run.name not in self.elsewhere or run.status().state not in ("finished", "failed"):
                return waiting
            self._conclude(run, run.status())
        return None

    def _start(self, run: RunDirectory, arguments: Sequence[str]) -> JobProcess:
        slot = self.slots[-1]
        gpu = self.gpus[slot % len(self.gpus)] if self.gpus else None
        self.starts[run.name] += 1
        return JobProcess(
            self.pool.command,
            run,
            arguments,
            threads=self.threads,
            gpu=gpu,
            code=self.code,
            starter=self.starter,
        )

    def _reap(self, *, again: bool) -> None:
        for process in [process for process in self.active if process.ended()]:
            slot, pace = self.active.pop(process)
            self.slots.append(slot)
            self.ended.append(pace)
            outcome, name = process.outcome(), process.run.name
            if process.busy and again:
                self._say_elsewhere(process.run)
                self.waiting.append(_waiting(process.job))
            elif again and self._may_go_on(process, outcome):
                self.view.say(f"↻ {name}  {outcome.error}; it will be started again", "yellow")
                self.waiting.append(_waiting(process.job))
            else:
                self.outcomes[name] = outcome
                self.view.say(*farewell(process, outcome))

    def _may_go_on(self, process: JobProcess, outcome: Status) -> bool:
        """Whether it was killed before its end, and not too often."""
        cut_off = process.killed and outcome.state == "interrupted"
        return cut_off and self.starts[process.run.name] < STARTS

    def _conclude(self, run: RunDirectory, status: Status) -> None:
        """Take how a run stands for its end, without a process of this launcher."""
        self.outcomes[run.name] = status
        self.view.say(f"· {ending(run, status)}", "yellow" if status.error else "green")

    def _say_elsewhere(self, run: RunDirectory) -> None:
        if run.name not in self.elsewhere:
            self.elsewhere.add(run.name)
            self.view.say(f"· {run.name}  is being run by another process; waiting for it")

    def _stop(self, *, kill: bool) -> None:
        self.waiting.clear()
        runs = f"{len(self.active)} run{'s' * (len(self.active) != 1)}"
        if kill:
            self.view.say(f"killing {runs}; what they did since their checkpoints is lost", "red")
        else:
            self.view.say(
                f"stopping: waiting for {runs} to write a checkpoint (Ctrl-C again kills)", "yellow"
            )
        for process in self.active:
            process.kill() if kill else process.terminate()

    def _snapshot(self) -> Snapshot:
        now = time.monotonic()
        rows = [under_way(process, pace, now) for process, (_, pace) in self.active.items()]
        paces = [pace for _, pace in self.active.values()]
        begun = [waiting.work for waiting in self.waiting]
        work = self.before + len(self.outcomes) + sum(pace.work for pace in paces) + sum(begun)
        return Snapshot(
            rows,
            counts=self._counts(),
            work=work / self.total,
            left=time_left(paces, self.ended, begun, self.workers, now),
        )

    def _counts(self) -> str:
        """`3 of 8 finished, 1 failed`."""
        ended = Counter(status.state for status in self.outcomes.values())
        others = [
            f", {ended[state]} {state}" for state in ("failed", "interrupted") if ended[state]
        ]
        return f"{self.before + ended['finished']} of {self.total} finished{''.join(others)}"

    def _say_plan(self) -> None:
        each = f"{self.threads} thread{'s' * (self.threads != 1)} each"
        if self.gpus:
            shared = f"{len(self.gpus) * self.devices} GPUs between them"
            own = "one GPU each" if self.devices == 1 else f"{self.devices} GPUs each"
            each += f", {shared if self.workers > len(self.gpus) else own}"
        before = f" ({self.before} finished before)" if self.before else ""
        runs = f"{self.total} run{'s' * (self.total != 1)}{before}"
        self.view.say(f"{runs}: {self.workers} at a time, {each}")

    def _say_end(self, seconds: float) -> None:
        self.view.say(f"{self._counts()}, in {clock(seconds)}")
        states = {status.state for status in self.outcomes.values()}
        if states != {"finished"} or self.before + len(self.outcomes) < self.total:
            again = "; with retry=true it runs what failed again, too" if "failed" in states else ""
            self.view.say(f"the same command goes on from here{again}")


def _waiting(job: Sequence[str]) -> _Waiting:
    run = RunDirectory(Path(job[0]))
    return _Waiting(run, job[1:], Status.read(run.status_file).work_done)
