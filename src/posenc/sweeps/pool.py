"""The default launcher, which runs a few processes at a time on this machine."""

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import closing

from posenc.config.console import Console
from posenc.config.errors import plural
from posenc.jobs.exit_codes import BUSY
from posenc.jobs.rank_processes import JOB_COMMAND
from posenc.runs.files import disk_message
from posenc.runs.hardware import cores, gpu_groups, gpus
from posenc.runs.lock import describe_holder, is_locked
from posenc.runs.status import Status
from posenc.sweeps.job_process import JobProcess, recorded_signals
from posenc.sweeps.launcher import Launcher, PlannedRun, check_positive
from posenc.sweeps.progress import (
    PlainDisplay,
    Snapshot,
    create_display,
    final_message,
    format_duration,
    progress_row,
    status_line,
)
from posenc.sweeps.time_left import Pace, time_left
from posenc.training.checkpoint import list_checkpoints

MAX_STARTS = 4
"""Maximum number of attempts for a run whose process is killed (usually because memory ran out)."""


def concurrent_runs(jobs: int | None, num_runs: int, devices: int, groups: Sequence[str]) -> int:
    """Return how many of `num_runs` runs, each on `devices` GPUs or cores, run concurrently.

    `jobs` is the limit. By default, it is one run per group of GPUs in `groups` or, without GPUs,
    as many as the cores allow.
    """
    slots = len(groups) or max(1, cores() // devices)
    return min(jobs or slots, max(1, num_runs))


class PoolLauncher(Launcher):
    """Runs up to `jobs` runs at a time, by default one per GPU or, without GPUs, one per core.

    A run with `devices=n` takes n GPUs or cores. The cores are divided evenly among the concurrent
    runs, as threads. Tests replace the `command` of the jobs.
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
        check_positive(jobs=jobs)
        self.jobs, self.command, self.poll_seconds = jobs, command, poll_seconds
        self.console = console or Console(stderr=True)

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run all `runs`; see `Launcher.launch`.

        A failed run does not stop the others. A run whose process is killed is restarted, unless it
        has been started MAX_STARTS times. If a run is locked by another process, the launcher waits
        for it. After Ctrl-C, SIGTERM or SIGHUP, the launcher waits until all runs have saved a
        checkpoint and raises KeyboardInterrupt; a second signal kills the runs.
        """
        display = create_display(self.console)
        with closing(display), recorded_signals() as interrupts:
            launch = _Launch(self, runs, finished, display)
            launch.run(interrupts)
        if interrupts:
            raise KeyboardInterrupt
        return launch.outcomes


class _Launch:
    """The state of one call to `PoolLauncher.launch`: waiting, active and ended runs."""

    def __init__(
        self, pool: PoolLauncher, runs: Sequence[PlannedRun], finished: int, display: PlainDisplay
    ) -> None:
        self.pool, self.display = pool, display
        self.num_finished, self.total = finished, finished + len(runs)
        self.waiting_runs = deque(runs)
        self.devices = max((planned.devices for planned in runs), default=1)
        self.gpus = gpu_groups(gpus(), self.devices)
        self.workers = concurrent_runs(pool.jobs, len(runs), self.devices, self.gpus)
        # Counts finished runs too, so that a resumed sweep uses as many threads as before.
        max_workers = concurrent_runs(pool.jobs, self.total, self.devices, self.gpus)
        self.threads = max(1, cores() // max_workers)
        self.free_slots = list(range(self.workers))[::-1]
        self.active_jobs: dict[JobProcess, tuple[int, Pace]] = {}
        self.ended_paces: list[Pace] = []
        self.outcomes: dict[str, Status] = {}
        self.num_starts: Counter[str] = Counter()
        self.running_elsewhere: set[str] = set()
        self.code = pool.snapshot_code(runs[0].run.path.parent) if runs else None
        self.initial_statuses = {planned.name: planned.run.status() for planned in runs}
        self.waiting_work = {name: s.work_done for name, s in self.initial_statuses.items()}
        # CUDA and, on macOS, some other libraries may not work in forked processes.
        self.fork = pool.command == JOB_COMMAND and not self.gpus and sys.platform == "linux"

    def run(self, interrupts: Sequence[float]) -> None:
        started, handled = time.monotonic(), 0
        self._print_header()
        try:
            while self.waiting_runs or self.active_jobs:
                if len(interrupts) > handled:
                    handled = len(interrupts)
                    self._stop(kill=handled > 1)
                self._start_waiting_runs()
                self.display.show(self._snapshot())
                time.sleep(self.pool.poll_seconds)
                self._collect_ended_jobs(restart=not interrupts)
        finally:
            for process in self.active_jobs:
                process.terminate()
            for process in self.active_jobs:
                process.wait()
        self._print_summary(time.monotonic() - started)

    def _start_waiting_runs(self) -> None:
        while self.free_slots and (planned := self._next_waiting_run()):
            status = Status.read(planned.run.status_file)
            checkpoints = list_checkpoints(planned.run.checkpoints)
            slot = self.free_slots[-1]
            self.num_starts[planned.name] += 1
            self.waiting_work.pop(planned.name, None)
            try:
                process = JobProcess(
                    planned,
                    threads=self.threads,
                    gpus=self.gpus[slot % len(self.gpus)] if self.gpus else None,
                    code=self.code,
                    command=self.pool.command,
                    fork=self.fork,
                )
            except EOFError:
                killed = Status("interrupted", "the fork server was killed")
                if self.num_starts[planned.name] < MAX_STARTS:
                    self.waiting_runs.append(planned)
                else:
                    self._record(planned, killed)
                continue
            except OSError as error:
                outcome = Status("failed", f"its process could not be started: {error}")
                if message := disk_message(error):
                    outcome = status.replace(state="interrupted", error=message)
                self._record(planned, outcome)
                continue
            self.active_jobs[process] = (
                self.free_slots.pop(),
                Pace(time.monotonic(), status.work_done),
            )
            if status.phase == "evaluation":
                self.display.log(f"▶ {planned.name}  evaluating")
            elif checkpoints:
                self.display.print(f"▶ {planned.name}  resumed from step {checkpoints[0].step}")
            else:
                self.display.log(f"▶ {planned.name}  started")

    def _next_waiting_run(self) -> PlannedRun | None:
        """Remove and return the first waiting run that needs a process.

        Skips runs that another process is running, and records those that have finished or failed
        in another process.
        """
        for planned in list(self.waiting_runs):
            if is_locked(planned.run.lock_file):
                self._note_running_elsewhere(planned)
                continue
            self.waiting_runs.remove(planned)
            status = planned.run.status()
            if not status.has_ended or status == self.initial_statuses[planned.name]:
                return planned
            self._record(planned, status)
        return None

    def _collect_ended_jobs(self, *, restart: bool) -> None:
        for process in [process for process in self.active_jobs if process.ended]:
            slot, pace = self.active_jobs.pop(process)
            self.free_slots.append(slot)
            self.ended_paces.append(pace)
            outcome, name = process.outcome(), process.run.name
            killed = process.killed and outcome.state == "interrupted"
            if process.exit_code == BUSY and restart:
                self._note_running_elsewhere(process.planned)
                self.waiting_runs.append(process.planned)
            elif restart and killed and self.num_starts[name] < MAX_STARTS:
                self.display.print(f"↻ {name}  {outcome.error}; restarting it", "yellow")
                self.waiting_runs.append(process.planned)
            else:
                self.outcomes[name] = outcome
                self.display.print(*final_message(process, outcome))

    def _record(self, planned: PlannedRun, status: Status) -> None:
        """Record a run that ended in another process, or whose process could not be started."""
        self.outcomes[planned.name] = status
        style = "yellow" if status.error else "green"
        self.display.print(f"· {status_line(planned.run, status)}", style)

    def _stop(self, *, kill: bool) -> None:
        self.waiting_runs.clear()
        runs = plural(len(self.active_jobs), "run")
        if kill:
            self.display.print(f"killing {runs}; progress since the last checkpoint is lost", "red")
        else:
            self.display.print(
                f"stopping: waiting for {runs} to write a checkpoint (Ctrl-C again to kill)",
                "yellow",
            )
        for process in self.active_jobs:
            process.kill() if kill else process.terminate()

    def _snapshot(self) -> Snapshot:
        now = time.monotonic()
        rows = [progress_row(process, pace, now) for process, (_, pace) in self.active_jobs.items()]
        paces = [pace for _, pace in self.active_jobs.values()]
        waiting_work = [self._work_done(planned) for planned in self.waiting_runs]
        ended = self.num_finished + len(self.outcomes)
        work = ended + sum(pace.work for pace in paces) + sum(waiting_work)
        return Snapshot(
            rows,
            counts=self._counts(),
            work=work / self.total,
            seconds_left=time_left(paces, self.ended_paces, waiting_work, self.workers, now),
        )

    def _work_done(self, planned: PlannedRun) -> float:
        """Return the completed fraction of a waiting run.

        The fraction is cached, because a sweep may have thousands of runs, and reread only for runs
        that another process executes.
        """
        name = planned.name
        if name not in self.waiting_work or name in self.running_elsewhere:
            self.waiting_work[name] = Status.read(planned.run.status_file).work_done
        return self.waiting_work[name]

    def _counts(self) -> str:
        """Return a string such as `3 of 8 finished, 1 failed`."""
        states = Counter(status.state for status in self.outcomes.values())
        finished = self.num_finished + states["finished"]
        counts = [f"{finished} of {self.total} finished"]
        counts += [f"{states[s]} {s}" for s in ("failed", "interrupted") if states[s]]
        return ", ".join(counts)

    def _note_running_elsewhere(self, planned: PlannedRun) -> None:
        if planned.name not in self.running_elsewhere:
            self.running_elsewhere.add(planned.name)
            holder = describe_holder(planned.run.lock_file)
            self.display.print(f"· {planned.name}  is being run by {holder}; waiting for it")

    def _print_header(self) -> None:
        resources = f"{plural(self.threads, 'thread')} each"
        if self.workers > len(self.gpus) > 0:
            resources += f", sharing {plural(len(self.gpus) * self.devices, 'GPU')}"
        elif self.gpus:
            resources += f", {plural(self.devices, 'GPU')} each"
        counts = plural(self.total, "run")
        if self.num_finished:
            counts += f": {self.num_finished} already finished, {len(self.waiting_runs)} to run"
        self.display.print(f"{counts} ({self.workers} at a time, {resources})")

    def _print_summary(self, seconds: float) -> None:
        self.display.print(f"{self._counts()}, in {format_duration(seconds)}")
        states = {status.state for status in self.outcomes.values()}
        remedies = []
        not_started = self.num_finished + len(self.outcomes) < self.total
        if not_started or states - {"finished", "failed"}:
            remedies.append("rerun the same command to resume")
        if "failed" in states:
            remedies.append("add retry=true to rerun failed runs")
        if remedies:
            self.display.print("; ".join(remedies))
