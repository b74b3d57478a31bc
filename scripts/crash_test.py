"""Fault-injection test: killing processes of a sweep at random must not change its results.

    python scripts/crash_test.py FOLDER [--every 5 30] [--seed 1] [key=value ...]

First trains 12 short runs without interruption in FOLDER/uninterrupted. Then trains the same runs
with `posenc train` in FOLDER/killed, and every 5 to 30 seconds sends SIGKILL to a random process of
the sweep: the launcher, its fork server, a job, or the launcher and a job together. Reruns the
command whenever the launcher has been killed. Prints every difference between the two folders; the
exit code is 1 if there is any, or if nothing was killed.
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

from posenc.config.grids import expand
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.sweeps.plan import plan

RUNS = [
    *("encoding=nope,alibi,rope,t5", "seed=1,2,3", "name=sweep", "trainer=cpu"),
    *("model.width=32", "model.layers=2", "model.heads=4", "model.feed_forward=64"),
    *("data=task_copy", "data.examples=40", "train_length=24", "batch_tokens=192", "tokens=96000"),
    *("validation.every_tokens=9600", "validation.tokens=480", "evaluation.factors=[1,2]"),
    *("checkpoint.every_seconds=0.2", "cache_dir=${outputs_dir}/../data"),
]
MARK = "POSENC_CRASH_TEST"
"""The environment variable that identifies the processes of the sweep."""
EXIT_SECONDS = 60.0
"""How long the processes of the sweep may take to exit at the end."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=float, nargs=2, default=(5.0, 30.0), metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("overrides", nargs="*", default=[])
    options = parser.parse_intermixed_args()
    started = time.monotonic()
    expected = train_uninterrupted(options.folder, options.overrides)
    print(f"uninterrupted: {len(expected)} runs in {time.monotonic() - started:.0f} s", flush=True)
    started, mark = time.monotonic(), uuid.uuid4().hex
    kills = train_with_kills(options.folder, options.overrides, options.every, options.seed, mark)
    counts = ", ".join(f"{count} x {name}" for name, count in sorted(kills.items()))
    print(f"killed: {counts or 'nothing'}, in {time.monotonic() - started:.0f} s", flush=True)
    problems = [*differences(expected), *orphans(mark)]
    problems += [] if kills else ["nothing was killed"]
    print("\n".join(problems) or f"all {len(expected)} runs are bit-identical")
    return int(bool(problems))


def train_uninterrupted(folder: Path, overrides: list[str]) -> list[RunDirectory]:
    words = [*RUNS, *overrides, f"outputs_dir={folder}/uninterrupted", "logger=none"]
    runs = [planned.run for planned in plan(expand(None, words), [], "", lambda line: None)]
    for run in runs:
        job([str(run.path)])
    return runs


def train_with_kills(
    folder: Path, overrides: list[str], every: tuple[float, float], seed: int, mark: str
) -> Counter[str]:
    """Rerun the sweep's command until it succeeds or a run fails; count the kills by process.

    A run that is killed several times in one launch stays interrupted until the next launch.
    """
    rng, kills = random.Random(seed), Counter[str]()
    words = [*RUNS, *overrides, f"outputs_dir={folder}/killed", "hydra.launcher.jobs=2"]
    command = [sys.executable, "-m", "posenc", "train", *words]
    with (folder / "killed.log").open("ab") as log:
        while True:
            launcher = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {MARK: mark}
            )
            while launcher.poll() is None:
                try:
                    launcher.wait(rng.uniform(*every))
                except subprocess.TimeoutExpired:
                    kills.update(kill_random_process(launcher.pid, mark, rng))
            states = {run.status().state for run in list_runs(folder / "killed" / "sweep")}
            if launcher.returncode in (0, 2) or "failed" in states:
                return kills


def kill_random_process(launcher: int, mark: str, rng: random.Random) -> list[str]:
    """Kill a random process of the sweep and return its name; kills none if there is no job."""
    forked = {
        pid for pid, command in sweep_processes(mark) if "multiprocessing.forkserver" in command
    }
    jobs = sorted(pid for pid in forked if parent(pid) in forked)
    if not jobs:
        return []
    targets = [("launcher", [launcher]), *(("job", [pid]) for pid in jobs)]
    targets += [("fork server", [pid]) for pid in forked - set(jobs)]
    targets += [("launcher and job", [launcher, pid]) for pid in jobs[:1]]
    name, pids = rng.choice(targets)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [name]


def sweep_processes(mark: str) -> Iterator[tuple[int, str]]:
    """Yield the pid and command line of every living process of the sweep."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            if f"{MARK}={mark}".encode() in environment:
                yield int(process.name), (process / "cmdline").read_text().replace("\0", " ")
        except OSError:  # the process has exited in the meantime
            continue


def parent(pid: int) -> int:
    """Return the pid of a process's parent, or 0 if the process has exited."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def differences(expected: list[RunDirectory]) -> Iterator[str]:
    """Yield every difference between the killed sweep and the uninterrupted one."""
    folder = expected[0].path.parents[2] / "killed" / "sweep"
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
                yield f"{run.name}: repeated steps in {source}: {logged}"


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
