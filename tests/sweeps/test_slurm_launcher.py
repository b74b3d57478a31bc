"""A sweep on a real Slurm cluster of one node: queued, requeued and cancelled."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posenc.runs.run_directory import RunDirectory, list_runs

SCRIPT = Path(__file__).parents[2] / "scripts" / "slurm_local.sh"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"no {', '.join(missing)}; run scripts/slurm_local.sh install as root")
    if os.getuid() != 0:
        pytest.skip("scripts/slurm_local.sh start needs root")
    folder = tmp_path / "slurm"
    subprocess.run(["bash", SCRIPT, "start", folder], check=True, stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    yield
    subprocess.run(["bash", SCRIPT, "stop", folder], check=True)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def queue() -> dict[str, str]:
    """Return the state of every job in the queue, by name."""
    command = ["squeue", "--noheader", "--format=%j %T"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split() for line in listing.stdout.splitlines())


def job_id(run: RunDirectory) -> str:
    command = ["squeue", "--noheader", "--format=%A", f"--name={run.name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.usefixtures("slurm")
def test_a_requeued_run_finishes_and_a_cancelled_one_resumes(
    small_job: list[str], tmp_path: Path
) -> None:
    """One of two runs is requeued and finishes; it logs every step exactly once.

    The other is cancelled and resumes when the command is repeated.
    """
    overrides = [*small_job, "tokens=192000", "encoding=alibi,nope", "name=queued"]
    overrides += ["hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1"]
    command = [sys.executable, "-m", "posenc", "train", *overrides]
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "outputs" / "queued"
    wait_until(lambda: len(queue()) == 2)
    alibi, nope = list_runs(folder)
    wait_until(lambda: all(len(run.metrics()) > 5 for run in (alibi, nope)))
    assert queue() == {alibi.name: "RUNNING", nope.name: "RUNNING"}
    assert {run.status().state for run in (alibi, nope)} == {"running"}
    subprocess.run(["scontrol", "requeue", job_id(alibi)], check=True)
    subprocess.run(["scancel", job_id(nope)], check=True)
    wait_until(lambda: nope.status().state == "interrupted" and nope.name not in queue())
    steps_before_cancellation = len(nope.metrics())
    wait_until(lambda: queue() == {alibi.name: "PENDING"})
    assert alibi.status().state == "interrupted"
    # Slurm does not start a requeued job until two minutes after its first start.
    subprocess.run(["scontrol", "update", f"JobId={job_id(alibi)}", "StartTime=now"], check=True)
    _, output = launcher.communicate(timeout=400)
    assert launcher.returncode == 1
    assert not queue()
    assert alibi.status().state == "finished", output
    assert "interrupted: stopped by a signal" in output
    assert [row["step"] for row in alibi.metrics()] == list(range(1, 1001))
    repeated = subprocess.run(command, capture_output=True, text=True)
    assert repeated.returncode == 0, repeated.stderr
    assert "submitting 1 run (slurm), 1 already finished" in repeated.stderr
    assert [row["step"] for row in nope.metrics()] == list(range(1, 1001))
    assert 5 < steps_before_cancellation < 1000
