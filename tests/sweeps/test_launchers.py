"""The other launchers produce the same runs as the pool."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posenc.cli import main
from posenc.config.errors import ConfigError
from posenc.config.grids import compose_sweep
from posenc.runs.code_snapshot import snapshot_code
from posenc.runs.hardware import cores
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.plan import plan
from posenc.sweeps.ray_launcher import RayLauncher
from posenc.sweeps.submitit_launcher import LocalLauncher, _new_jobs_folder

SmallRun = Callable[..., RunDirectory]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["submitit_local", "ray"])
def test_every_launcher_produces_the_runs_of_the_pool(
    small_job: list[str], tmp_path: Path, launcher: str
) -> None:
    pytest.importorskip(launcher.partition("_")[0])
    overrides = [*small_job, "encoding=alibi,nope", f"name={launcher}"]
    threads = max(1, cores() // 2)  # as in the pool, which runs both at once
    option = "num_cpus" if launcher == "ray" else "cpus_per_task"
    options = [f"hydra/launcher={launcher}", f"hydra.launcher.{option}={threads}"]
    command = [sys.executable, "-m", "posenc", "train", *overrides, *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert main(["train", *overrides[:-1], "name=pool"]) == 0
    runs, expected = (list_runs(tmp_path / "outputs" / name) for name in (launcher, "pool"))
    assert [run.name for run in runs] == [run.name for run in expected]
    for run, other in zip(runs, expected, strict=True):
        assert run.metrics_file.read_text() == other.metrics_file.read_text()
        assert [row["sum"] for row in run.rows()] == [row["sum"] for row in other.rows()]


def test_a_cluster_can_have_devices_that_this_machine_lacks(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    overrides = [*small_job, "trainer=gpu", "devices=4"]
    with pytest.raises(ConfigError, match="GPU"):
        plan([overrides], [], "test", print)
    assert plan([overrides], [], "test", print, local=False)[0].run.status().state == "pending"


def test_a_ray_cluster_is_local_unless_it_has_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert not RayLauncher(None, num_cpus=1, gpus=False).local
    monkeypatch.delenv("RAY_ADDRESS")
    assert RayLauncher(None, num_cpus=1, gpus=False).local
    assert not RayLauncher("10.0.0.1:6379", num_cpus=1, gpus=False).local
    assert RayLauncher("local", num_cpus=1, gpus=False).local


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put commands of Slurm on the PATH; the queue is always empty, and sbatch runs a script."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)

    def install(sbatch: str) -> None:
        for name, script in (("srun", "true"), ("squeue", "true"), ("sbatch", sbatch)):
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)

    return install


def test_without_slurm_nothing_is_planned(
    small_job: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["train", *small_job, "name=queued", "hydra/launcher=submitit_slurm"]) == 2
    assert "no srun, sbatch, squeue" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_a_rejected_job_is_reported_without_a_traceback(
    fake_slurm: Callable[[str], None], small_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    fake_slurm("echo 'sbatch: error: invalid partition specified' >&2; exit 1")
    assert main(["train", *small_job, "name=queued", "hydra/launcher=submitit_slurm"]) == 1
    message = capsys.readouterr().err
    assert "invalid partition specified" in message and "additional_parameters" in message
    assert "Traceback" not in message


def test_a_job_that_ends_before_its_run_starts_names_its_log(
    fake_slurm: Callable[[str], None],
    small_job: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("submitit")
    fake_slurm("echo Submitted batch job 7")
    assert main(["train", *small_job, "name=queued", "hydra/launcher=submitit_slurm"]) == 1
    output = " ".join(capsys.readouterr().err.split())
    assert "its job ended before the run started" in output and "7_0_log.err" in output
    (run,) = list_runs(tmp_path / "outputs" / "queued")
    assert run.status().state == "pending"


def test_an_unreachable_ray_cluster_is_an_error_before_anything_is_planned(
    small_job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        overrides = ["hydra/launcher=ray", f"hydra.launcher.address={address}", "name=queued"]
        assert main(["train", *small_job, *overrides]) == 2
    assert address in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_a_ray_job_that_no_node_can_run_is_an_error(
    small_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    overrides = ["hydra/launcher=ray", "hydra.launcher.num_cpus=4096", "name=queued"]
    assert main(["train", *small_job, *overrides]) == 2
    assert "4096 CPUs" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["jobs", "cpus_per_task", "timeout_min"])
def test_options_of_a_queue_launcher_must_be_positive(option: str) -> None:
    options: dict[str, Any] = {"jobs": None, "cpus_per_task": 1, "timeout_min": 1, option: 0}
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{option}=0"):
        LocalLauncher(**options)


def test_files_that_others_left_for_submitit_are_never_unpickled(tmp_path: Path) -> None:
    (tmp_path / ".submitit").mkdir()
    (tmp_path / ".submitit" / "1_submitted.pkl").touch()
    first, second = _new_jobs_folder(tmp_path), _new_jobs_folder(tmp_path)
    assert first != second and not [*first.iterdir(), *second.iterdir()]


@pytest.mark.slow
def test_a_job_at_its_time_limit_checkpoints_and_is_requeued(small_run: SmallRun) -> None:
    """The test sends the signal that submitit's controller would send."""
    pytest.importorskip("submitit")
    run = small_run("tokens=96000")
    launcher = LocalLauncher(jobs=None, cpus_per_task=1, timeout_min=10)
    folder = run.path.absolute().parent
    job: Any = launcher._submit(PlannedRun(run), snapshot_code(folder), folder / ".submitit")
    while len(run.metrics()) < 5:
        time.sleep(0.05)
    (task,) = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()
    os.kill(int(task), signal.SIGUSR2)
    while not job.done():
        time.sleep(0.1)
    assert run.status().state == "finished"
    assert [row["step"] for row in run.metrics()] == list(range(1, 501))
    assert run.log_file.read_text().count("INFO posenc ") == 2


def test_additional_sbatch_parameters_are_a_mapping() -> None:
    overrides = ["hydra/launcher=submitit_slurm"]
    overrides += ["hydra.launcher.additional_parameters={partition: gpu, mem: 32G}"]
    launcher = compose_sweep("train", overrides, []).hydra.launcher
    assert launcher.additional_parameters == {"partition": "gpu", "mem": "32G"}
