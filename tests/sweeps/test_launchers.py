"""Launchers other than the pool: the same runs in the same directories."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posenc.cli import main
from posenc.config.errors import ConfigError
from posenc.runs.run_directory import RunDirectory, runs_of
from posenc.sweeps.machine import cores
from posenc.sweeps.plan import plan
from posenc.sweeps.queued import Queue

SmallRun = Callable[..., RunDirectory]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["submitit_local", "ray"])
def test_a_launcher_makes_the_runs_of_the_pool(
    small_job: list[str], tmp_path: Path, launcher: str
) -> None:
    pytest.importorskip(launcher.partition("_")[0])
    words = [*small_job, "encoding=alibi,nope", f"name={launcher}"]
    threads = max(1, cores() // 2)  # as the pool gives to each of two runs
    options = [f"hydra/launcher={launcher}", f"hydra.launcher.threads={threads}"]
    command = [sys.executable, "-m", "posenc", "train", *words, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert main(["train", *words[:-1], "name=pool"]) == 0
    there, expected = (runs_of(tmp_path / "outputs" / name) for name in (launcher, "pool"))
    assert [run.name for run in there] == [run.name for run in expected]
    for run, other in zip(there, expected, strict=True):
        assert run.metrics_file.read_text() == other.metrics_file.read_text()
        assert [row["sum"] for row in run.rows()] == [row["sum"] for row in other.rows()]


def test_a_cluster_has_devices_that_are_not_here(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    words = [*small_job, "trainer=gpu", "devices=4"]
    with pytest.raises(ConfigError, match="no CUDA GPU is there"):
        plan([words], [], "test", print)
    assert plan([words], [], "test", print, here=False)[0].run.status().state == "pending"


@pytest.mark.parametrize("knob", ["jobs", "threads", "minutes"])
def test_what_a_queue_cannot_do(knob: str) -> None:
    given: dict[str, Any] = {"jobs": None, "threads": 1, "minutes": 1, knob: 0}
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{knob}=0: give 1 or more"):
        Queue("local", **given)


@pytest.mark.slow
def test_a_job_whose_time_is_up_checkpoints_and_is_started_again(small_run: SmallRun) -> None:
    """By the signal that submitit's controller sends its task for that."""
    pytest.importorskip("submitit")
    run = small_run("tokens=96000")
    queue = Queue("local", jobs=None, threads=1, minutes=10)
    job: Any = queue._submit([str(run.path)])[1]
    while len(run.metrics()) < 5:
        time.sleep(0.05)
    (task,) = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()
    os.kill(int(task), signal.SIGUSR2)
    while not job.done():
        time.sleep(0.1)
    assert run.status().state == "finished"
    assert [row["step"] for row in run.metrics()] == list(range(1, 501))
    assert run.log_file.read_text().count("INFO posenc ") == 2
