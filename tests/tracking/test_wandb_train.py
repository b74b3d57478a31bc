"""A whole run of `posenc train` before a server, killed and started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posenc.runs.run_directory import RunDirectory, runs_of

pytestmark = pytest.mark.slow
TRAIN = ["logger=wandb", "logger.mode=online", "name=kept", "encoding=alibi"]
WAIT = 300


def started(small_job: list[str], *words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "posenc", "train", *small_job, *TRAIN, *words]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill_when(process: subprocess.Popen, outputs: Path, ready) -> RunDirectory:
    """SIGKILL for the launcher and its job once the run has come so far."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until and process.poll() is None:
        runs = runs_of(outputs / "kept")
        if runs and ready(runs[0]):
            break
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (run,) = runs_of(outputs / "kept")
    until = time.monotonic() + WAIT
    while run.status().state == "running" and time.monotonic() < until:
        time.sleep(0.05)
    return run


def finished(small_job: list[str], *words: str) -> None:
    assert started(small_job, *words).wait(timeout=WAIT) == 0


def columns(run: RunDirectory) -> tuple[list[float], list[tuple[int, str]]]:
    losses = [row["loss"] for row in run.metrics()]
    return losses, sorted((row["length"], row["protocol"]) for row in run.rows())


def test_a_run_killed_twice_is_one_run_with_no_step_twice(server, small_job, tmp_path):
    """Once in training and once in evaluation, after rows that its dashboard has not seen."""
    outputs, often = tmp_path / "outputs", "checkpoint.every_seconds=0"
    kill_when(
        started(small_job, often), outputs, lambda run: len(list(run.checkpoints.glob("s*"))) > 1
    )
    run = kill_when(started(small_job, often), outputs, lambda run: run.rows())
    finished(small_job, often)
    assert run.status().state == "finished"
    ((name, kept),) = server.runs.items()
    assert (name, kept["exit_code"]) == (f"kept.{run.name}", 0)
    history = server.history(name)
    assert [row["_step"] for row in history] == list(range(1, len(history) + 1))
    losses, rows = columns(run)
    assert [row["train/loss"] for row in history if "train/loss" in row] == losses
    arrived = sorted(
        (row["extrapolation/length"], key.split("/")[1])
        for row in history
        for key in row
        if key.startswith("extrapolation/") and key.endswith("/perplexity")
    )
    assert arrived == rows
