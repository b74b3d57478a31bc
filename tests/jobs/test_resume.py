"""A run that is interrupted anywhere has the results of an uninterrupted one, bit for bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from posenc.cli import main as posenc
from posenc.config.errors import RunError
from posenc.config.saved_yaml import dump_yaml
from posenc.jobs import run_job
from posenc.jobs.exit_codes import BUSY, FAILED, FINISHED, INTERRUPTED
from posenc.jobs.job import main
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan
from posenc.training.checkpoint import list_checkpoints

SmallRun = Callable[..., RunDirectory]


def start(run: RunDirectory) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "posenc.jobs.job", str(run.path), "--threads", "1"]
    with run.log_file.open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def wait_for_step(run: RunDirectory, step: int, process: subprocess.Popen[bytes]) -> None:
    while len(run.metrics()) < step:
        assert process.poll() is None, run.log_file.read_text()
        time.sleep(0.005)


def sums(run: RunDirectory) -> list[tuple[int, str, float, int]]:
    return [(row["length"], row["protocol"], row["sum"], row["count"]) for row in run.rows()]


def finish(run: RunDirectory) -> RunDirectory:
    """Run or resume a run in this process; `start` runs one in a process that can be killed."""
    assert main([str(run.path), "--threads", "1"]) == FINISHED, run.status().error
    assert run.status().state == "finished"
    return run


DROPOUT, MICRO_BATCHES = (
    ("encoding=t5", "model.dropout=0.2"),
    ("encoding=alibi", "micro_batch_tokens=48"),
)
DROP_AT_HALF = ("encoding.dropped_fraction=0.5",)
DROPPED_RANDOMIZED = (
    "encoding=drope",
    *DROP_AT_HALF,
    "encoding@encoding.inner=randomized",
    "encoding.inner.max_length=128",
)


@pytest.mark.parametrize(
    ("stop_signal", "overrides"),
    [
        (signal.SIGKILL, DROPOUT),
        pytest.param(signal.SIGTERM, DROPOUT, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, MICRO_BATCHES, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, MICRO_BATCHES, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, DROPPED_RANDOMIZED, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_has_the_results_of_an_uninterrupted_one(
    small_run: SmallRun, tmp_path: Path, stop_signal: signal.Signals, overrides: tuple[str, ...]
) -> None:
    """The run is stopped twice; it writes a checkpoint after almost every step."""
    uninterrupted = finish(small_run(*overrides, "name=uninterrupted"))
    run = small_run(*overrides, "name=stopped", "checkpoint.every_seconds=0.01")
    for step in (7, 23):
        process = start(run)
        wait_for_step(run, step, process)
        os.kill(process.pid, stop_signal)
        code = process.wait()
        if stop_signal == signal.SIGTERM:
            assert code == INTERRUPTED
        assert run.status().state == "interrupted"
    finish(run)
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
    assert sums(run) == sums(uninterrupted)
    assert [row["step"] for row in run.metrics()] == list(range(1, 41))


@pytest.mark.slow
def test_a_resumed_run_on_a_task_sees_the_same_examples(task_job: list[str]) -> None:
    def planned(*overrides: str) -> RunDirectory:
        return plan([[*task_job, *overrides]], [], "test", print)[0].run

    uninterrupted = finish(planned("micro_batch_tokens=48", "name=uninterrupted"))
    run = planned("micro_batch_tokens=48", "name=stopped", "checkpoint.every_seconds=0.01")
    process = start(run)
    wait_for_step(run, 15, process)
    process.kill()
    process.wait()
    finish(run)
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
    assert sums(run) == sums(uninterrupted)


@pytest.mark.slow
def test_an_encoding_that_is_dropped_in_training_stays_dropped_in_evaluation(
    small_run: SmallRun,
) -> None:
    """Up to the drop after 20 of 40 steps, the losses are those of the inner encoding."""
    inner = finish(small_run("encoding=alibi", "name=inner"))
    run = finish(small_run("encoding=drope", "encoding@encoding.inner=alibi", *DROP_AT_HALF))
    losses = [[row["loss"] for row in r.metrics()] for r in (inner, run)]
    assert losses[0][:20] == losses[1][:20]
    assert all(a != b for a, b in zip(losses[0][20:], losses[1][20:], strict=True))
    [saved] = [c for c in list_checkpoints(run.checkpoints) if c.step == 40]
    assert bool(saved.weights()["encoding._extra_state"])
    assert sums(inner) != sums(run)


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_restarts(small_run: SmallRun) -> None:
    run = small_run("checkpoint.every_seconds=3600")
    process = start(run)
    wait_for_step(run, 5, process)
    process.kill()
    process.wait()
    assert not list_checkpoints(run.checkpoints)
    finish(run)
    assert [row["step"] for row in run.metrics()] == list(range(1, 41))


@pytest.mark.slow
def test_after_a_corrupt_checkpoint_the_previous_one_is_used(
    small_run: SmallRun, caplog: pytest.LogCaptureFixture
) -> None:
    uninterrupted = finish(small_run("name=uninterrupted"))
    run = small_run("name=corrupt", "checkpoint.every_seconds=0.01")
    process = start(run)
    wait_for_step(run, 20, process)
    process.kill()
    process.wait()
    # There are three if the process was killed before it deleted the oldest.
    newest, previous, *_ = list_checkpoints(run.checkpoints)
    with newest.path.open("r+b") as file:
        file.seek(newest.path.stat().st_size // 2)
        file.write(b"\0\1\2\3garbage")
    finish(run)
    assert f"checkpoint {newest.path.name} is corrupt" in caplog.text
    assert previous.step < newest.step
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
    assert sums(run) == sums(uninterrupted)


@pytest.mark.slow
def test_a_run_with_missing_rows_resumes_from_a_checkpoint_before_them(
    small_run: SmallRun,
) -> None:
    run = small_run("checkpoint.every_seconds=0", "evaluation.factors=[1]")
    assert main([str(run.path)]) == FINISHED
    assert [checkpoint.step for checkpoint in list_checkpoints(run.checkpoints)] == [40, 39]
    complete = run.metrics_file.read_text()
    run.metrics_file.write_text("".join(complete.splitlines(keepends=True)[:39]))
    assert main([str(run.path)]) == FINISHED
    assert run.metrics_file.read_text() == complete
    run.metrics_file.write_text("".join(complete.splitlines(keepends=True)[:20]))
    assert main([str(run.path)]) == FAILED
    error = str(run.status().error)
    assert "no row for step 21" in error and str(run.path) in error
    run.metrics_file.write_text(complete)
    assert main([str(run.path)]) == FINISHED


@pytest.mark.parametrize("change", ["repeat", "reverse", "strip"])
def test_a_run_without_exactly_one_row_per_step_is_not_resumed(
    small_run: SmallRun, change: str
) -> None:
    run = finish(small_run("evaluation.factors=[1]"))
    rows = run.metrics_file.read_text().splitlines(keepends=True)
    changed = {
        "repeat": [*rows[:5], *rows[4:]],
        "reverse": rows[::-1],
        "strip": [*rows[:5], '{"step": 6}\n', *rows[6:]],
    }
    run.metrics_file.write_text("".join(changed[change]))
    assert main([str(run.path)]) == FAILED
    assert "no row for step" in str(run.status().error)


@pytest.mark.slow
def test_a_run_uses_neither_checkpoints_nor_results_of_another_run(
    small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = (finish(small_run(f"encoding={name}")) for name in ("rope", "nope"))
    own = run.checkpoints.rename(run.path / "own")
    shutil.copytree(other.checkpoints, run.checkpoints)
    assert posenc(["evaluate", f"run={run.path}", "evaluation.lengths=[30]"]) == 1
    assert "saved by the run with hash" in capsys.readouterr().err
    shutil.rmtree(run.checkpoints)
    own.rename(run.checkpoints)
    shutil.copy(other.evaluation_file, run.evaluation_file)
    assert main([str(run.path)]) == FAILED
    assert "contains results of the run with hash" in str(run.status().error)
    assert posenc(["evaluate", f"run={run.path}", "evaluation.lengths=[30]"]) == 1


def test_a_finished_run_is_evaluated_at_new_lengths_without_training(small_run: SmallRun) -> None:
    run = finish(small_run())
    checkpoint = list_checkpoints(run.checkpoints)[0]
    again = small_run("evaluation.factors=[1,4,8]")
    assert again.path == run.path
    assert run.status().state == "pending"
    finish(run)
    assert sorted({row["length"] for row in run.rows()}) == [24, 96, 192]
    assert list_checkpoints(run.checkpoints)[0] == checkpoint
    assert len(run.metrics()) == 40


@pytest.mark.slow
def test_a_second_process_does_not_start_a_running_run(
    small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run("tokens=1e6")
    process = start(run)
    try:
        wait_for_step(run, 1, process)
        started = json.loads(run.status_file.read_text())["started"]
        assert main([str(run.path)]) == BUSY
        assert "is being run by another process" in capsys.readouterr().out
        assert json.loads(run.status_file.read_text())["started"] == started
    finally:
        process.terminate()
        assert process.wait() == INTERRUPTED


def test_settings_edited_in_a_saved_configuration_are_replaced_by_those_of_the_command(
    small_job: list[str],
) -> None:
    run = finish(plan([small_job], [], "test", print)[0].run)
    planned = run.config_dict()
    edited = yaml.safe_load(run.config_file.read_text())
    edited["validation"]["tokens"] = 1
    edited["data"]["test"] = None
    run.config_file.write_text(dump_yaml(edited))
    plan([small_job], [], "test", print)
    for key in ("validation", "data"):
        assert run.config_dict()[key] == planned[key] != edited[key]
    assert run.config_dict(verify=True) == planned


def test_a_job_that_was_killed_after_its_last_checkpoint_has_the_steps_of_its_log(
    small_run: SmallRun,
) -> None:
    run = finish(small_run())
    steps = run.status().step
    run.status().replace(state="interrupted", step=1, tokens=1).write(run.status_file)
    assert finish(run).status().step == steps == run.metrics()[-1]["step"]
    with pytest.raises(RunError, match="step="):
        run.check_logs(run.status().replace(step=steps + 1), run.metrics(), run.timing())


@pytest.mark.slow
def test_a_job_that_waits_for_the_data_of_another_process_can_be_stopped(
    small_run: SmallRun,
) -> None:
    run = small_run()
    cache, fingerprint = Path(run.config().cache_dir), run.config().planned.fingerprint
    shutil.rmtree(cache / fingerprint, ignore_errors=True)
    with lock(cache / f".{fingerprint}.lock"):
        process = start(run)
        while "waiting for another process" not in run.log_file.read_text():
            assert process.poll() is None, run.log_file.read_text()
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == INTERRUPTED
    assert run.status().state == "interrupted"
    assert main([str(run.path)]) == FINISHED


@pytest.mark.slow
def test_a_job_writes_a_checkpoint_when_its_launcher_dies(small_run: SmallRun) -> None:
    run = small_run("tokens=1e6")
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL,"
            " stderr=subprocess.DEVNULL); print(p.pid, flush=True); p.wait()",
            sys.executable,
            "-m",
            "posenc.jobs.job",
            str(run.path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        while len(run.metrics()) < 2:
            time.sleep(0.01)
        launcher.kill()
        launcher.wait()
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.05)
    status = run.status()
    assert (status.state, status.error) == ("interrupted", "its launcher died")
    assert list_checkpoints(run.checkpoints)[0].step == len(run.metrics())


def test_the_error_for_a_run_started_on_a_gpu_says_how_to_continue_without_one(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finish(small_run("encoding=rope", "checkpoint.every_seconds=0"))
    status = run.status()
    on_gpu = {**(status.resolved or {}), "device": "cuda"}
    status.replace(state="interrupted", resolved=on_gpu).write(run.status_file)
    newest, _ = list_checkpoints(run.checkpoints)
    newest.path.unlink()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main([str(run.path), "--threads", "1"]) == FAILED
    error = run.status().error
    assert error is not None and "started on a GPU" in error and "retry=true" in error


def test_a_run_that_was_trained_on_a_gpu_is_evaluated_without_one(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finish(small_run("encoding=rope"))
    status, rows = run.status(), run.rows()
    on_gpu = {**(status.resolved or {}), "device": "cuda"}
    status.replace(state="pending", resolved=on_gpu).write(run.status_file)
    run.evaluation_file.unlink()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main([str(run.path), "--threads", "1"]) == FINISHED
    assert [row["loss"] for row in run.rows()] == [row["loss"] for row in rows]
    assert run.status().resolved["device"] == "cuda"


@pytest.mark.slow
def test_a_run_that_is_trained_again_from_the_start_is_evaluated_again(
    small_run: SmallRun,
) -> None:
    """The rows of the earlier weights, whose checkpoints were deleted, are set aside."""
    run = finish(small_run("encoding=rope"))
    losses, inode = [row["loss"] for row in run.rows()], run.evaluation_file.stat().st_ino
    shutil.rmtree(run.checkpoints)
    run.status_file.unlink()
    finish(run)
    assert [row["loss"] for row in run.rows()] == losses
    assert run.evaluation_file.with_name("evaluation.json.old").exists()
    assert run.evaluation_file.stat().st_ino != inode


@pytest.mark.slow
def test_a_run_whose_last_steps_are_repeated_is_evaluated_again(small_run: SmallRun) -> None:
    run = finish(small_run("encoding=rope", "checkpoint.every_seconds=0.01"))
    losses, inode = [row["loss"] for row in run.rows()], run.evaluation_file.stat().st_ino
    newest = max(list_checkpoints(run.checkpoints), key=lambda checkpoint: checkpoint.step)
    newest.path.unlink()
    run.status_file.unlink()
    finish(run)
    assert [row["loss"] for row in run.rows()] == losses
    assert run.evaluation_file.stat().st_ino != inode


def test_a_run_that_was_started_on_a_cpu_resumes_there_on_a_machine_with_a_gpu(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel and compilation are chosen for the CPU, too."""
    run = finish(small_run("encoding=alibi", "trainer=auto"))
    before = run.status()
    before.replace(state="interrupted").write(run.status_file)
    monkeypatch.setattr(run_job, "select_device", lambda config: torch.device("cuda"))
    assert main([str(run.path), "--threads", "1"]) == FINISHED
    assert run.status().resolved == before.resolved


def test_the_log_of_a_run_that_resumes_on_another_processor_names_both(
    small_run: SmallRun, caplog: pytest.LogCaptureFixture
) -> None:
    run = finish(small_run("encoding=rope"))
    status = run.status()
    here = status.resolved["processor"]
    elsewhere = {**status.resolved, "processor": "Elbrus-8C"}
    status.replace(state="interrupted", resolved=elsewhere).write(run.status_file)
    assert main([str(run.path), "--threads", "1"]) == FINISHED
    assert f"processor Elbrus-8C, resuming with {here}" in caplog.text
    assert run.status().resolved["processor"] == "Elbrus-8C"


@pytest.mark.slow
def test_an_exception_is_recorded_in_the_status(small_run: SmallRun) -> None:
    run = small_run("optimizer.learning_rate=1e30", "gradient_clip=null")
    process = start(run)
    assert process.wait() == 1
    status = run.status()
    assert status.state == "failed"
    assert status.error is not None and "the loss is not finite at step" in status.error
    assert "\n" not in status.error


@pytest.mark.slow
def test_accumulated_micro_batches_equal_whole_batches(small_run: SmallRun) -> None:
    adamw = "optimizer=adamw"  # Muon amplifies rounding differences
    whole = small_run(adamw, "name=whole")
    micro = small_run(adamw, "name=micro", "micro_batch_tokens=48")
    assert main([str(whole.path)]) == main([str(micro.path)]) == FINISHED
    for a, b in zip(whole.metrics(), micro.metrics(), strict=True):
        assert a["step"] == b["step"] and a["learning_rate"] == b["learning_rate"]
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)
    assert whole.rows()[0]["loss"] == pytest.approx(micro.rows()[0]["loss"], abs=1e-4)


@pytest.mark.slow
def test_bf16_is_close_to_float32(small_run: SmallRun) -> None:
    float32, bf16 = small_run(), small_run("precision=bf16")
    assert float32.name != bf16.name
    assert main([str(float32.path)]) == main([str(bf16.path)]) == FINISHED
    for a, b in zip(float32.rows(), bf16.rows(), strict=True):
        assert a["loss"] != b["loss"]
        assert a["loss"] == pytest.approx(b["loss"], abs=0.1)
