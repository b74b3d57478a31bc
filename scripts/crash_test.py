"""Fault-injection test: killing processes of a sweep at random must not change its results.

    python scripts/crash_test.py FOLDER [--kills 1] [--every 0.5 30] [--seed 1] [--read-only]
        [key=value ...]

First trains 12 short runs without interruption in FOLDER/uninterrupted. Then trains the same runs
with `posenc train` in FOLDER/killed-1. From the start of the command, sends SIGKILL at random
intervals of 0.5 to 30 seconds to one or two random processes of the sweep: the launcher (also while
it imports, plans or prepares data), its fork server, a job or W&B's service.
With `--read-only`, which needs root, the folder of each sweep also becomes read-only at
most once, at a random time, until the launcher exits. Reruns the command until it succeeds, is
rejected or a run fails. Repeats the sweep in FOLDER/killed-2 and so on until there have been at
least `--kills` faults, or a problem is found. Prints every difference between the folders, and
every process of a sweep that does not exit. The exit code is 1 if there are any, or if there was
no fault.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from posenc.cli import main as posenc
from posenc.config.grids import expand
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.sweeps.plan import plan

DOCS = Path(__file__).resolve().parents[1] / "docs"
RUNS = """
encoding=nope,alibi,rope,t5 seed=1,2,3 name=sweep trainer=cpu model.width=32 model.layers=2
model.heads=4 model.feed_forward=64 data=text tokenizer=byte train_length=24 batch_tokens=192
tokens=96000 validation.every_tokens=9600 validation.tokens=480 evaluation.factors=[1,2]
checkpoint.every_seconds=0.2 cache_dir=${outputs_dir}/data
""".split()
MARK = "POSENC_CRASH_TEST"
"""The environment variable that identifies the processes of the sweep."""
NO_JOB = "launcher while no job was running"
READ_ONLY = "file system made read-only"
EXIT_SECONDS = 60.0
"""How long the sweep's processes may take to exit after the launcher has exited."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--every", type=float, nargs=2, default=(0.5, 30.0), metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("overrides", nargs="*", default=[])
    options = parser.parse_intermixed_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    corpus = options.folder / "corpus.txt"
    corpus.write_text("\n".join(file.read_text() for file in sorted(DOCS.glob("*.md"))))
    options.overrides.append(f"data.paths={corpus}")
    started = time.monotonic()
    expected = train_uninterrupted(options.folder, options.overrides)
    seconds = f"{time.monotonic() - started:.0f} s"
    print(f"seed {options.seed}; uninterrupted: {len(expected)} runs in {seconds}", flush=True)
    started, mark, rng = time.monotonic(), uuid.uuid4().hex, random.Random(options.seed)
    faults, problems, sweeps = Counter[str](), list[str](), 0
    while not problems and (sweeps == 0 or faults.total() < options.kills):
        sweeps += 1
        folder = options.folder / f"killed-{sweeps}"
        folder.mkdir()
        with Disk(folder, options.read_only) as disk:
            faults += train_with_kills(disk, options.overrides, options.every, rng, mark)
        counts = ", ".join(f"{count} x {name}" for name, count in sorted(faults.items()))
        print(f"faults: {counts or 'none'}, in {time.monotonic() - started:.0f} s", flush=True)
        problems = [*orphans(mark), *differences(expected, folder)]
        problems += [] if faults else ["there was no fault"]
    print("\n".join(problems) or f"all {len(expected)} runs are bit-identical")
    return int(bool(problems))


def train_uninterrupted(folder: Path, overrides: list[str]) -> list[RunDirectory]:
    words = [*RUNS, *overrides, f"outputs_dir={folder}/uninterrupted", "logger=none"]
    runs = [planned.run for planned in plan(expand(None, words), [], "", lambda line: None)]
    for run in runs:
        job([str(run.path)])
    return runs


class Disk:
    """A folder that can be made read-only by bind-mounting it on itself."""

    def __init__(self, folder: Path, becomes_read_only: bool) -> None:
        self.folder, self.will_be_read_only = folder, becomes_read_only
        self.is_read_only = False

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_: object) -> None:
        self.make_writable()

    def make_read_only(self) -> None:
        folder = str(self.folder)
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        self.will_be_read_only, self.is_read_only = False, True
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)

    def make_writable(self) -> None:
        if self.is_read_only:
            subprocess.run(["umount", str(self.folder)], check=True)
            self.is_read_only = False


def train_with_kills(
    disk: Disk,
    overrides: list[str],
    every: tuple[float, float],
    rng: random.Random,
    mark: str,
) -> Counter[str]:
    """Rerun the command until it succeeds, is rejected or a run fails; count the faults by kind.

    A run that is killed several times in one launch stays interrupted until the next launch. If the
    launcher is killed while no job is running, the next intervals are twice as long; otherwise, a
    slow machine might never start a job.
    """
    faults, factor, folder = Counter[str](), 1.0, disk.folder
    words = [*RUNS, *overrides, f"outputs_dir={folder}", "hydra.launcher.jobs=2"]
    command = [sys.executable, "-m", "posenc", "train", *words]
    with folder.with_suffix(".log").open("ab") as log:
        while True:
            launcher = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {MARK: mark}
            )
            names: list[str] = []
            while launcher.poll() is None:
                try:
                    launcher.wait(factor * rng.uniform(*every))
                except subprocess.TimeoutExpired:
                    if disk.will_be_read_only and rng.random() < 0.5:
                        disk.make_read_only()
                        names.append(READ_ONLY)
                    else:
                        names += kill_random_processes(launcher.pid, mark, rng)
            faults.update(names)
            factor = 2 * factor if NO_JOB in names else 1.0
            was_read_only = disk.is_read_only
            disk.make_writable()
            states = {run.status().state for run in list_runs(folder / "sweep")}
            done = launcher.returncode == 0 or (launcher.returncode == 2 and not was_read_only)
            if done or "failed" in states:
                return faults


def kill_random_processes(launcher: int, mark: str, rng: random.Random) -> list[str]:
    """Kill one or two random processes of the sweep and return their names."""
    processes = dict(sweep_processes(mark))
    forked = {pid for pid, command in processes.items() if "multiprocessing.forkserver" in command}
    jobs = {pid for pid in forked if parent(pid) in forked}
    killed = []
    for pid in rng.sample(sorted(processes), k=min(len(processes), rng.choice((1, 1, 1, 2)))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.append(process_name(pid, processes[pid], launcher, jobs))
    return killed


def process_name(pid: int, command: str, launcher: int, jobs: set[int]) -> str:
    if pid == launcher:
        return "launcher" if jobs else NO_JOB
    if pid in jobs:
        return "job"
    names = {"wandb": "W&B service", "forkserver": "fork server", "tracker": "resource tracker"}
    return next((name for part, name in names.items() if part in command), "other")


def sweep_processes(mark: str) -> Iterator[tuple[int, str]]:
    """Yield the pid and command line of every living process of the sweep."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            if f"{MARK}={mark}".encode() in environment:
                yield int(process.name), (process / "cmdline").read_text().replace("\0", " ")
        except OSError:  # the process has exited
            continue


def parent(pid: int) -> int:
    """Return the pid of a process's parent, or 0 if the process has exited."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def differences(expected: list[RunDirectory], outputs: Path) -> Iterator[str]:
    """Yield every difference between the killed sweep and the uninterrupted one.

    W&B files that lost rows when W&B's service was killed are rewritten first, as `posenc status`
    advises.
    """
    folder = outputs / "sweep"
    if posenc(["sync", "sweep", f"outputs_dir={outputs}", "--offline"]) != 0:
        yield "posenc sync --offline failed"
    steps = wandb_steps(folder)
    names = {run.name for run in list_runs(folder)}
    if names != {run.name for run in expected} or set(steps) != {f"sweep.{n}" for n in names}:
        yield f"runs {sorted(names)}, in W&B {sorted(steps)}"
        return
    for run in expected:
        other = RunDirectory(folder / run.name)
        if other.status().state != "finished":
            yield f"{run.name} is {other.status()}"
        if other.metrics_file.read_text() != run.metrics_file.read_text():
            yield f"{run.name}: metrics.jsonl differs"
        if (actual := loss_sums(other)) != (expected_sums := loss_sums(run)):
            yield f"{run.name}: evaluation differs: {actual}, expected {expected_sums}"
        if (count := other.log_file.read_text().count("training finished")) > 1:
            yield f"{run.name} finished training {count} times"
        timing_steps = [row["step"] for row in other.timing()]
        wandb = steps[f"sweep.{run.name}"]
        for source, logged in (("W&B", wandb), ("timing.jsonl", timing_steps)):
            if len(logged) != len(set(logged)) or logged != sorted(logged):
                yield f"{run.name}: repeated or unordered steps in {source}: {logged}"
        if not {row["step"] for row in run.metrics()} <= set(wandb):
            yield f"{run.name}: steps are missing in W&B"


def loss_sums(run: RunDirectory) -> list[tuple[int, float, int]]:
    return [(row["length"], row["sum"], row["count"]) for row in run.rows()]


def wandb_steps(folder: Path) -> dict[str, list[int]]:
    """Return the logged steps of every W&B run, from all of its offline files."""
    steps: dict[str, list[int]] = {}
    for file in sorted(folder.glob("wandb/*run-*/run-*.wandb")):
        wandb = str(Path(sys.executable).with_name("wandb"))
        command = [wandb, "leet", "inspect", str(file), "--json"]
        lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        logged = steps.setdefault(file.stem.removeprefix("run-"), [])
        records = [json.loads(line) for line in lines]
        logged += [r["history"]["item"]["_step"] for r in records if r["type"] == "history"]
    return steps


def orphans(mark: str) -> list[str]:
    """Return a message for each process of the sweep that does not exit within EXIT_SECONDS."""
    deadline = time.monotonic() + EXIT_SECONDS
    while (remaining := list(sweep_processes(mark))) and time.monotonic() < deadline:
        time.sleep(0.5)
    return [f"process {pid} is still running: {command}" for pid, command in remaining]


if __name__ == "__main__":
    sys.exit(main())
