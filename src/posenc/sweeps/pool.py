"""The default launcher: processes on this machine, a few at a time."""

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence

from rich.console import Console

from posenc.jobs.frozen_code import freeze_code
from posenc.runs.hardware import cores, gpu_groups, gpus
from posenc.runs.lock import is_locked
from posenc.runs.status import Status
from posenc.sweeps.job_process import JOB_COMMAND, JobProcess, received_signals
from posenc.sweeps.launcher import PlannedRun, check_positive
from posenc.sweeps.progress import (
    Display,
    Snapshot,
    clock,
    display_on,
    final_message,
    percent,
    plural,
    progress_row,
    status_line,
)
from posenc.sweeps.time_left import Pace, time_left

MAX_STARTS = 4
"""How often one launch starts a run whose process is killed, for example for lack of memory."""


class PoolLauncher:
    """Runs up to `jobs` runs at a time: by default one per GPU (group), or one per core.

    The cores are divided among them as threads. `command` replaces the job's command in tests.
    """

    local = True

    def __init__(
        self,
        jobs: int | None = None,
        *,
        console: Console | None = None,
        command: Sequence[str] = JOB_COMMAND,
        poll_seconds: float = 0.2,
    ) -> None:
        if jobs is not None:
            check_positive(jobs=jobs)
        self.jobs, self.command, self.poll_seconds = jobs, command, poll_seconds
        self.console = console or Console(stderr=True)

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run every job; see `Launcher.launch`.

        A failure stops nothing else; a run whose process is killed is started again; a run that
        another process has is waited for. Ctrl-C (or SIGTERM) asks the runs to write a checkpoint
        and exit, waits for them and raises KeyboardInterrupt; a second one kills them.
        """
        display = display_on(self.console)
        try:
            with received_signals() as interrupts:
                launch = _Launch(self, runs, finished, display)
                launch.run(interrupts)
        finally:
            display.close()
        if interrupts:
            raise KeyboardInterrupt
        return launch.outcomes


class _Launch:
    """The state of one call of `PoolLauncher.launch`: waiting, active and ended runs."""

    def __init__(
        self, pool: PoolLauncher, runs: Sequence[PlannedRun], finished: int, display: Display
    ) -> None:
        self.pool, self.display = pool, display
        self.finished_before, self.total = finished, finished + len(runs)
        self.waiting = deque(runs)
        self.devices = max((planned.devices for planned in runs), default=1)
        self.gpus = gpu_groups(gpus(), self.devices)
        slots = len(self.gpus) or max(1, cores() // self.devices)
        self.workers = min(pool.jobs or slots, max(1, len(runs)))
        # As many threads as if no run had finished before, so that a resumed sweep is the same.
        self.threads = max(1, cores() // min(pool.jobs or slots, max(1, self.total)))
        self.free_slots = list(range(self.workers))[::-1]
        self.active: dict[JobProcess, tuple[int, Pace]] = {}
        self.ended: list[Pace] = []
        self.outcomes: dict[str, Status] = {}
        self.starts: Counter[str] = Counter()
        self.run_elsewhere: set[str] = set()
        self.code = freeze_code(runs[0].run.path.parent) if runs else None
        # CUDA does not survive a fork, nor do some libraries on other systems.
        self.fork = pool.command == JOB_COMMAND and not self.gpus and sys.platform == "linux"

    def run(self, interrupts: Sequence[float]) -> None:
        started, handled = time.monotonic(), 0
        self._print_plan()
        try:
            while self.waiting or self.active:
                if len(interrupts) > handled:
                    handled = len(interrupts)
                    self._stop(kill=handled > 1)
                self._start_waiting()
                self.display.show(self._snapshot())
                time.sleep(self.pool.poll_seconds)
                self._collect_ended(restart=not interrupts)
        finally:
            for process in self.active:
                process.terminate()
            for process in self.active:
                process.wait()
        self._print_summary(time.monotonic() - started)

    def _start_waiting(self) -> None:
        while self.free_slots and (planned := self._next_waiting()):
            work = Status.read(planned.run.status_file).work_done
            try:
                process = self._start(planned)
            except OSError as error:
                failed = Status(state="failed", error=f"its process could not be started: {error}")
                self._record(planned, failed)
                continue
            self.active[process] = (self.free_slots.pop(), Pace(time.monotonic(), work))
            resumed = f" at {percent(work)}" if work else ""
            self.display.log(f"▶ {planned.name}  started{resumed}")

    def _next_waiting(self) -> PlannedRun | None:
        """Remove and return the first waiting run that no other process runs or has finished."""
        for planned in list(self.waiting):
            if is_locked(planned.run.lock_file):
                self._print_elsewhere(planned)
                continue
            self.waiting.remove(planned)
            status = planned.run.status()
            if planned.name not in self.run_elsewhere or status.state not in ("finished", "failed"):
                return planned
            self._record(planned, status)
        return None

    def _start(self, planned: PlannedRun) -> JobProcess:
        slot = self.free_slots[-1]
        self.starts[planned.name] += 1
        return JobProcess(
            planned,
            threads=self.threads,
            gpus=self.gpus[slot % len(self.gpus)] if self.gpus else None,
            code=self.code,
            command=self.pool.command,
            fork=self.fork,
        )

    def _collect_ended(self, *, restart: bool) -> None:
        for process in [process for process in self.active if process.ended]:
            slot, pace = self.active.pop(process)
            self.free_slots.append(slot)
            self.ended.append(pace)
            outcome, name = process.outcome(), process.run.name
            killed = process.killed and outcome.state == "interrupted"
            if process.busy and restart:
                self._print_elsewhere(process.planned)
                self.waiting.append(process.planned)
            elif restart and killed and self.starts[name] < MAX_STARTS:
                self.display.print(f"↻ {name}  {outcome.error}; restarting it", "yellow")
                self.waiting.append(process.planned)
            else:
                self.outcomes[name] = outcome
                self.display.print(*final_message(process, outcome))

    def _record(self, planned: PlannedRun, status: Status) -> None:
        """Record the outcome of a run that has no process of this launcher."""
        self.outcomes[planned.name] = status
        style = "yellow" if status.error else "green"
        self.display.print(f"· {status_line(planned.run, status)}", style)

    def _stop(self, *, kill: bool) -> None:
        self.waiting.clear()
        runs = plural(len(self.active), "run")
        if kill:
            self.display.print(f"killing {runs}; work since their last checkpoints is lost", "red")
        else:
            self.display.print(
                f"stopping: waiting for {runs} to write a checkpoint (Ctrl-C again to kill)",
                "yellow",
            )
        for process in self.active:
            process.kill() if kill else process.terminate()

    def _snapshot(self) -> Snapshot:
        now = time.monotonic()
        rows = [progress_row(process, pace, now) for process, (_, pace) in self.active.items()]
        paces = [pace for _, pace in self.active.values()]
        waiting = [Status.read(planned.run.status_file).work_done for planned in self.waiting]
        ended = self.finished_before + len(self.outcomes)
        work = ended + sum(pace.work for pace in paces) + sum(waiting)
        return Snapshot(
            rows,
            counts=self._counts(),
            work=work / self.total,
            seconds_left=time_left(paces, self.ended, waiting, self.workers, now),
        )

    def _counts(self) -> str:
        """Return a text such as `3 of 8 finished, 1 failed`."""
        states = Counter(status.state for status in self.outcomes.values())
        others = [f", {states[s]} {s}" for s in ("failed", "interrupted") if states[s]]
        finished = self.finished_before + states["finished"]
        return f"{finished} of {self.total} finished{''.join(others)}"

    def _print_elsewhere(self, planned: PlannedRun) -> None:
        if planned.name not in self.run_elsewhere:
            self.run_elsewhere.add(planned.name)
            self.display.print(f"· {planned.name}  is being run by another process; waiting for it")

    def _print_plan(self) -> None:
        each = f"{plural(self.threads, 'thread')} each"
        if self.gpus:
            own = "one GPU each" if self.devices == 1 else f"{self.devices} GPUs each"
            shared = f"sharing {len(self.gpus) * self.devices} GPUs"
            each += f", {shared if self.workers > len(self.gpus) else own}"
        before = f", {self.finished_before} already finished" if self.finished_before else ""
        runs = f"{plural(self.total, 'run')}{before}"
        self.display.print(f"{runs}: {self.workers} at a time, {each}")

    def _print_summary(self, seconds: float) -> None:
        self.display.print(f"{self._counts()}, in {clock(seconds)}")
        states = {status.state for status in self.outcomes.values()}
        if states != {"finished"} or self.finished_before + len(self.outcomes) < self.total:
            retry = "; add retry=true to rerun failed runs" if "failed" in states else ""
            self.display.print(f"rerun the same command to resume{retry}")
