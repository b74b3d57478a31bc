"""A sweep under a hammer: its processes are killed at random until it is done all the same.

    python scripts/hammer.py FOLDER [--every 5 30] [--seed 1] [key=value ...]

Trains 12 short runs undisturbed, in this process, into FOLDER/undisturbed; then the same by
`posenc train` into FOLDER/hammered, while every 5 to 30 seconds a random one of its processes, the
launcher and the process that jobs are forked from included, or launcher and job together, are
killed with SIGKILL, and the same command is typed again whenever the launcher is gone. In the end
it says what differs; exit code 1 if anything does, or if nothing was killed.
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

from posenc.runs.run_directory import RunDirectory, runs_of
from posenc.sweeps.grids import expand
from posenc.sweeps.job import main as job
from posenc.sweeps.plan import plan

RUNS = [
    *("encoding=nope,alibi,rope,t5", "seed=1,2,3", "name=sweep", "trainer=cpu"),
    *("model.width=32", "model.layers=2", "model.heads=4", "model.feed_forward=64"),
    *("data=task_copy", "data.examples=40", "train_length=24", "batch_tokens=192", "tokens=96000"),
    *("validation.every_tokens=9600", "validation.tokens=480", "evaluation.factors=[1,2]"),
    *("checkpoint.every_seconds=0.2", "cache_dir=${outputs_dir}/../data"),
]
MARK = "POSENC_HAMMER"
PATIENCE = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=float, nargs=2, default=(5.0, 30.0), metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("overrides", nargs="*", default=[])
    options = parser.parse_intermixed_args()
    began = time.monotonic()
    undisturbed = train(options.folder, options.overrides)
    print(f"undisturbed: {len(undisturbed)} runs in {time.monotonic() - began:.0f} s", flush=True)
    began, mark = time.monotonic(), uuid.uuid4().hex
    blows = hammer(options.folder, options.overrides, options.every, options.seed, mark)
    told = ", ".join(f"{count} x {name}" for name, count in sorted(blows.items()))
    print(f"hammered: {time.monotonic() - began:.0f} s; killed {told}", flush=True)
    complaints = [*differences(undisturbed), *orphans(mark)]
    complaints += [] if blows else ["nothing was killed"]
    print("\n".join(complaints) or f"all {len(undisturbed)} runs as undisturbed, bit for bit")
    return int(bool(complaints))


def train(folder: Path, overrides: list[str]) -> list[RunDirectory]:
    words = [*RUNS, *overrides, f"outputs_dir={folder}/undisturbed", "logger=none"]
    runs = [each.run for each in plan(expand(None, words), [], "", lambda line: None)]
    for run in runs:
        job([str(run.path)])
    return runs


def hammer(
    folder: Path, overrides: list[str], every: tuple[float, float], seed: int, mark: str
) -> Counter[str]:
    """Kill until the sweep's own command says that all is done; what was killed how often."""
    draw, blows = random.Random(seed), Counter[str]()
    words = [*RUNS, *overrides, f"outputs_dir={folder}/hammered", "hydra.launcher.jobs=2"]
    command = [sys.executable, "-m", "posenc", "train", *words]
    with (folder / "hammered.log").open("ab") as log:
        while True:
            launcher = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {MARK: mark}
            )
            while launcher.poll() is None:
                try:
                    launcher.wait(draw.uniform(*every))
                except subprocess.TimeoutExpired:
                    blows.update(strike(launcher.pid, mark, draw))
            if launcher.returncode >= 0:
                return blows


def strike(launcher: int, mark: str, draw: random.Random) -> list[str]:
    """Who was killed: nobody while there is no job, or a slow machine would never get to one."""
    found = dict(marked(mark))
    starters = {pid for pid, command in found.items() if "posenc.sweeps.starter" in command}
    forks = {pid for pid in starters if parent(pid) in starters}
    jobs = [pid for pid in found if pid in forks or "posenc.sweeps.job" in found[pid]]
    if not jobs:
        return []
    draws = [("launcher", [launcher]), *(("job", [pid]) for pid in jobs)]
    draws += [("starter", [pid]) for pid in starters - forks]
    draws += [("launcher and job", [launcher, pid]) for pid in jobs[:1]]
    name, pids = draw.choice(draws)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [name]


def marked(mark: str) -> Iterator[tuple[int, str]]:
    """Living processes that the sweep started, however indirectly, and their command lines."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            if f"{MARK}={mark}".encode() in environment:
                yield int(process.name), (process / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it has ended meanwhile
            continue


def parent(pid: int) -> int:
    """Whose child it is: jobs are forks of a starter. 0 once it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def differences(undisturbed: list[RunDirectory]) -> Iterator[str]:
    folder = undisturbed[0].path.parents[2] / "hammered" / "sweep"
    steps = mirrored_steps(folder)
    names = {run.name for run in runs_of(folder)}
    if names != {run.name for run in undisturbed} or set(steps) != {f"sweep.{n}" for n in names}:
        yield f"runs {sorted(names)}, of W&B {sorted(steps)}"
        return
    for one in undisturbed:
        other = RunDirectory(folder / one.name)
        if other.status().state != "finished":
            yield f"{one.name} is {other.status()}"
        if other.metrics_file.read_text() != one.metrics_file.read_text():
            yield f"{one.name}: metrics.jsonl differs"
        if sums(other) != sums(one):
            yield f"{one.name}: evaluation differs: {sums(other)}, undisturbed {sums(one)}"
        if (ends := other.log_file.read_text().count("trained to its end")) > 1:
            yield f"{one.name} was trained to its end {ends} times"
        timed = [row["step"] for row in other.timing()]
        for where, logged in (("W&B", steps[f"sweep.{one.name}"]), ("timing.jsonl", timed)):
            if len(logged) != len(set(logged)) or logged != sorted(logged):
                yield f"{one.name}: steps twice in {where}: {logged}"


def sums(run: RunDirectory) -> list[tuple[int, float, int]]:
    return [(row["length"], row["sum"], row["count"]) for row in run.rows()]


def mirrored_steps(folder: Path) -> dict[str, list[int]]:
    """The steps that every W&B run has, over all of its offline fragments."""
    steps: dict[str, list[int]] = {}
    for file in sorted(folder.glob("wandb/*run-*/run-*.wandb")):
        wandb = str(Path(sys.executable).with_name("wandb"))
        command = [wandb, "leet", "inspect", str(file), "--json"]
        lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        own = steps.setdefault(file.stem.removeprefix("run-"), [])
        records = [json.loads(line) for line in lines]
        own += [r["history"]["item"]["_step"] for r in records if r["type"] == "history"]
    return steps


def orphans(mark: str) -> list[str]:
    """What is left of the sweep's processes once they have had time to end."""
    until = time.monotonic() + PATIENCE
    while (left := list(marked(mark))) and time.monotonic() < until:
        time.sleep(0.5)
    return [f"process {pid} is left: {command}" for pid, command in left]


if __name__ == "__main__":
    sys.exit(main())
