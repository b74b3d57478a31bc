"""A run that is stopped anywhere ends as one that never was: line for line, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.jobs.exit_codes import BUSY, FINISHED, INTERRUPTED
from posenc.jobs.job import main
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
    process = start(run)
    assert process.wait() == FINISHED, run.log_file.read_text()
    assert run.status().state == "finished"
    return run


DROPOUT, PARTS = ("encoding=t5", "model.dropout=0.2"), ("encoding=alibi", "micro_batch_tokens=48")
HALF = ("encoding.dropped_fraction=0.5",)
DRAWN_THEN_DROPPED = (
    "encoding=drope",
    *HALF,
    "encoding@encoding.inner=randomized",
    "encoding.inner.max_length=128",
)


@pytest.mark.parametrize(
    ("number", "overrides"),
    [
        (signal.SIGKILL, DROPOUT),
        pytest.param(signal.SIGTERM, DROPOUT, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, PARTS, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, PARTS, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, DRAWN_THEN_DROPPED, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_ends_as_an_undisturbed_one(
    small_run: SmallRun, tmp_path: Path, number: signal.Signals, overrides: tuple[str, ...]
) -> None:
    """Killed twice, at whatever step it then is, with a checkpoint after almost every step."""
    undisturbed = finish(small_run(*overrides, "name=undisturbed"))
    run = small_run(*overrides, "name=stopped", "checkpoint.every_seconds=0.01")
    for step in (7, 23):
        process = start(run)
        wait_for_step(run, step, process)
        os.kill(process.pid, number)
        code = process.wait()
        if number == signal.SIGTERM:
            assert code == INTERRUPTED
        assert run.status().state == "interrupted"
    finish(run)
    assert run.metrics_file.read_text() == undisturbed.metrics_file.read_text()
    assert sums(run) == sums(undisturbed)
    assert [row["step"] for row in run.metrics()] == list(range(1, 41))


@pytest.mark.slow
def test_a_stopped_run_on_a_task_goes_on_with_the_same_examples(task_job: list[str]) -> None:
    def planned(*overrides: str) -> RunDirectory:
        return plan([[*task_job, *overrides]], [], "test", print)[0].run

    undisturbed = finish(planned("micro_batch_tokens=48", "name=undisturbed"))
    run = planned("micro_batch_tokens=48", "name=stopped", "checkpoint.every_seconds=0.01")
    process = start(run)
    wait_for_step(run, 15, process)
    process.kill()
    process.wait()
    finish(run)
    assert run.metrics_file.read_text() == undisturbed.metrics_file.read_text()
    assert sums(run) == sums(undisturbed)


@pytest.mark.slow
def test_an_encoding_is_dropped_in_training_and_stays_so_for_evaluation(
    small_run: SmallRun,
) -> None:
    """Nothing differs from the inner encoding's run up to the drop at half of the 40 steps."""
    plain = finish(small_run("encoding=alibi", "name=plain"))
    run = finish(small_run("encoding=drope", "encoding@encoding.inner=alibi", *HALF))
    losses = [[row["loss"] for row in r.metrics()] for r in (plain, run)]
    assert losses[0][:20] == losses[1][:20]
    assert all(a != b for a, b in zip(losses[0][20:], losses[1][20:], strict=True))
    [saved] = [c for c in list_checkpoints(run.checkpoints) if c.step == 40]
    assert bool(saved.weights()["encoding._extra_state"])
    assert sums(plain) != sums(run)


def test_a_run_killed_before_its_first_checkpoint_starts_again(small_run: SmallRun) -> None:
    run = small_run("checkpoint.every_seconds=3600")
    process = start(run)
    wait_for_step(run, 5, process)
    process.kill()
    process.wait()
    assert not list_checkpoints(run.checkpoints)
    finish(run)
    assert [row["step"] for row in run.metrics()] == list(range(1, 41))


@pytest.mark.slow
def test_a_corrupt_checkpoint_gives_way_to_the_one_before(small_run: SmallRun) -> None:
    undisturbed = finish(small_run("name=undisturbed"))
    run = small_run("name=damaged", "checkpoint.every_seconds=0.01")
    process = start(run)
    wait_for_step(run, 20, process)
    process.kill()
    process.wait()
    newest, before = list_checkpoints(run.checkpoints)
    with newest.path.open("r+b") as file:
        file.seek(newest.path.stat().st_size // 2)
        file.write(b"\0\1\2\3garbage")
    finish(run)
    assert f"checkpoint {newest.path.name} is corrupt" in run.log_file.read_text()
    assert before.step < newest.step
    assert run.metrics_file.read_text() == undisturbed.metrics_file.read_text()
    assert sums(run) == sums(undisturbed)


def test_a_finished_run_lacks_only_what_is_newly_asked_for(small_run: SmallRun) -> None:
    run = finish(small_run())
    checkpoint = list_checkpoints(run.checkpoints)[0]
    again = small_run("evaluation.factors=[1,4,8]")
    assert again.path == run.path
    assert run.status().state == "pending"
    finish(run)
    assert sorted({row["length"] for row in run.rows()}) == [24, 96, 192]
    assert list_checkpoints(run.checkpoints)[0] == checkpoint
    assert len(run.metrics()) == 40


def test_one_run_has_one_process(small_run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run("tokens=1e6")
    process = start(run)
    try:
        wait_for_step(run, 1, process)
        before = json.loads(run.status_file.read_text())["started"]
        assert main([str(run.path)]) == BUSY
        assert "is being run by another process" in capsys.readouterr().out
        assert json.loads(run.status_file.read_text())["started"] == before
    finally:
        process.terminate()
        assert process.wait() == INTERRUPTED


def test_a_job_whose_launcher_dies_checkpoints_and_is_interrupted(small_run: SmallRun) -> None:
    run = small_run("tokens=1e6")
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL,"
            " stderr=subprocess.DEVNULL); print(p.pid, flush=True); p.wait()",
            *(sys.executable, "-m", "posenc.jobs.job", str(run.path)),
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


def test_an_exception_in_the_run_ends_in_its_status(small_run: SmallRun) -> None:
    run = small_run("optimizer.learning_rate=1e30", "gradient_clip=null")
    process = start(run)
    assert process.wait() == 1
    status = run.status()
    assert status.state == "failed"
    assert status.error is not None and "the loss is not a number at step" in status.error
    assert "\n" not in status.error


def test_accumulated_micro_batches_make_the_steps_of_whole_batches(small_run: SmallRun) -> None:
    whole, parts = small_run("name=whole"), small_run("name=parts", "micro_batch_tokens=48")
    assert main([str(whole.path)]) == main([str(parts.path)]) == FINISHED
    for a, b in zip(whole.metrics(), parts.metrics(), strict=True):
        assert a["step"] == b["step"] and a["learning_rate"] == b["learning_rate"]
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)
    assert whole.rows()[0]["loss"] == pytest.approx(parts.rows()[0]["loss"], abs=1e-4)


def test_bf16_trains_and_is_evaluated(small_run: SmallRun) -> None:
    exact, half = small_run(), small_run("precision=bf16")
    assert exact.name != half.name
    assert main([str(exact.path)]) == main([str(half.path)]) == FINISHED
    for a, b in zip(exact.rows(), half.rows(), strict=True):
        assert a["loss"] != b["loss"]
        assert a["loss"] == pytest.approx(b["loss"], abs=0.1)
