"""`posenc train` with an online server, killed twice and resumed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posenc.runs.run_directory import RunDirectory, list_runs

pytestmark = pytest.mark.slow
TRAIN = ["logger=wandb", "logger.mode=online", "name=kept", "encoding=alibi"]
WAIT_SECONDS = 300


def start_training(small_job: list[str], *overrides: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "posenc", "train", *small_job, *TRAIN, *overrides]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill_when(process: subprocess.Popen, outputs: Path, ready) -> RunDirectory:
    """Kill the launcher and its job as soon as the run is `ready`."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        runs = list_runs(outputs / "kept")
        if runs and ready(runs[0]):
            break
        time.sleep(0.02)
    assert process.poll() is None, "the run ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (run,) = list_runs(outputs / "kept")
    deadline = time.monotonic() + WAIT_SECONDS
    while run.status().state == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    return run


def test_a_run_killed_twice_is_one_run_with_every_step_once(server, small_job, tmp_path):
    """Killed once in training and once in evaluation, after rows that W&B has not received."""
    outputs, always_checkpoint = tmp_path / "outputs", "checkpoint.every_seconds=0"
    kill_when(
        start_training(small_job, always_checkpoint),
        outputs,
        lambda run: len(list(run.checkpoints.glob("s*"))) > 1,
    )
    run = kill_when(start_training(small_job, always_checkpoint), outputs, lambda run: run.rows())
    assert start_training(small_job, always_checkpoint).wait(timeout=WAIT_SECONDS) == 0
    assert run.status().state == "finished"
    ((run_id, saved),) = server.runs.items()
    assert (run_id, saved["exit_code"]) == (f"kept.{run.name}", 0)
    history = server.history(run_id)
    assert [row["_step"] for row in history] == list(range(1, len(history) + 1))
    losses = [row["loss"] for row in run.metrics()]
    assert [row["train/loss"] for row in history if "train/loss" in row] == losses
    logged = sorted(
        (row["extrapolation/length"], key.split("/")[1])
        for row in history
        for key in row
        if key.startswith("extrapolation/") and key.endswith("/perplexity")
    )
    assert logged == sorted((row["length"], row["protocol"]) for row in run.rows())
