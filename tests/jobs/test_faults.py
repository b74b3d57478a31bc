"""Faults injected into runs: the error message, what is kept, and how the run resumes."""

import io
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from posenc.cli import main as posenc
from posenc.jobs.exit_codes import FAILED, FINISHED, INTERRUPTED
from posenc.jobs.job import main as job
from posenc.runs.code_snapshot import PACKAGE
from posenc.runs.files import append_jsonl, write_atomic
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.training import checkpoint

SmallRun = Callable[..., RunDirectory]
FAULTY_ENCODINGS = '''
import torch
from posenc.encodings.nope import NoPE

class OutOfMemory(NoPE):
    """Runs out of memory with more than `max_tokens` tokens at once."""

    def __init__(self, geometry, *, max_tokens):
        super().__init__(geometry)
        self.max_tokens = max_tokens

    def embed(self, x, pos):
        if x.shape[0] * x.shape[1] > self.max_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return x

class Diverging(NoPE):
    def set_training_progress(self, fraction):
        self.factor = 1.0 if fraction <= 0.5 else float("nan")

    def embed(self, x, pos):
        return x * self.factor

class Exits(NoPE):  # passes the checks before training, like the next one
    def embed(self, x, pos):
        if len(pos) > 7 and self.training:
            raise SystemExit(0)
        return x

class Broken(NoPE):
    def embed(self, x, pos):
        return x if len(pos) <= 7 or not self.training else x * (1 // len([]))
'''


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's module on the import path, with encodings that fail."""
    file = tmp_path / "user_faults.py"
    file.write_text(FAULTY_ENCODINGS)
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    sys.modules.pop("user_faults", None)


def out_of_memory(max_tokens: int) -> list[str]:
    target = "encoding._target_=user_faults.OutOfMemory"
    return ["encoding=nope", target, f"+encoding.max_tokens={max_tokens}"]


def start(run: RunDirectory, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "posenc.jobs.job", str(run.path), *words]
    with run.log_file.open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment)


def sums(run: RunDirectory) -> list[tuple[int, float, int]]:
    return [(row["length"], row["sum"], row["count"]) for row in run.rows()]


@pytest.mark.slow
def test_out_of_memory_in_training_names_the_batch_and_a_remedy_that_works(
    small_run: SmallRun, user_module: Path
) -> None:
    run = small_run(*out_of_memory(150))
    assert job([str(run.path), "--module", "user_faults"]) == FAILED
    error = run.status().error
    assert error is not None and "192 tokens at once (8 x train_length=24)" in error
    assert "micro_batch_tokens=96 retry=true" in error and "2.00 GiB" in error
    smaller = small_run(*out_of_memory(150), "micro_batch_tokens=96")
    assert smaller.path == run.path
    assert job([str(run.path), "--module", "user_faults"]) == FAILED
    assert "evaluation.batch_tokens=" in str(run.status().error)
    small_run(*out_of_memory(150), "micro_batch_tokens=96", "evaluation.batch_tokens=96")
    assert job([str(run.path), "--module", "user_faults"]) == FINISHED


@pytest.mark.slow
def test_out_of_memory_in_evaluation_halves_the_batch_and_continues(
    small_run: SmallRun, user_module: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Validation is off, because it uses the same batches."""
    overrides = ["validation.every_tokens=null", "evaluation.batch_tokens=1000"]
    run = small_run(*out_of_memory(200), *overrides)
    with caplog.at_level(logging.WARNING):
        assert job([str(run.path), "--module", "user_faults"]) == FINISHED
    assert "out of memory with a batch of 984 tokens; continuing with 480" in caplog.text
    larger = small_run(*out_of_memory(5000), *overrides)
    assert job([str(larger.path), "--module", "user_faults"]) == FINISHED
    for small, large in zip(run.rows(), larger.rows(), strict=True):
        assert small["tokens_hash"] == large["tokens_hash"]
        assert small["sum"] == pytest.approx(large["sum"], rel=1e-6)


def test_a_window_that_exceeds_memory_is_named(small_run: SmallRun, user_module: Path) -> None:
    run = small_run(
        *out_of_memory(192), "validation.every_tokens=null", "evaluation.factors=[1,16]"
    )
    assert job([str(run.path), "--module", "user_faults"]) == FAILED
    assert "out of memory with one window of 384 tokens" in str(run.status().error)
    assert {row["length"] for row in run.rows()} == {24}


def test_an_exception_in_an_encoding_is_reported_with_its_file_and_line(
    small_run: SmallRun, user_module: Path
) -> None:
    run = small_run("encoding=nope", "encoding._target_=user_faults.Broken")
    run.lock_file.write_text("4194304\n")  # a stale lock of a process that has ended
    assert job([str(run.path), "--module", "user_faults"]) == FAILED
    code = "        return x if len(pos) <= 7 or not self.training else x * (1 // len([]))"
    line = FAULTY_ENCODINGS.splitlines().index(code) + 1
    error = run.status().error
    assert error is not None and f"(user_faults.py, line {line}, embed)" in error


def test_an_encoding_that_exits_during_training_fails_the_run(
    small_run: SmallRun, user_module: Path
) -> None:
    run = small_run("encoding=nope", "encoding._target_=user_faults.Exits")
    assert job([str(run.path), "--module", "user_faults"]) == FAILED
    assert "SystemExit: 0 (user_faults.py" in str(run.status().error)


@pytest.mark.slow
def test_an_encoding_that_was_edited_after_planning_is_an_error(
    small_run: SmallRun, user_module: Path
) -> None:
    run = small_run(*out_of_memory(5000))
    user_module.write_text(FAULTY_ENCODINGS.replace("return x\n", "return 2 * x\n"))
    process = start(
        run, "--module", "user_faults", PYTHONPATH=f"{user_module.parent}:{PACKAGE.parent}"
    )
    assert process.wait() == FAILED
    assert "edited since" in str(run.status().error)
    assert not run.metrics_file.exists()


def test_a_nan_loss_stops_the_run_and_keeps_the_last_good_checkpoint(
    small_run: SmallRun, user_module: Path
) -> None:
    """The loss is NaN from step 21 on, so the weights after step 20 are not known to be good."""
    diverging = ["encoding=nope", "encoding._target_=user_faults.Diverging"]
    run = small_run(*diverging, "checkpoint.every_seconds=1e-6")
    assert job([str(run.path), "--module", "user_faults"]) == FAILED
    error = run.status().error
    assert error is not None and "the loss is not finite at step 21 (nan)" in error
    assert "checkpoint is from step 19" in error
    assert [c.step for c in checkpoint.list_checkpoints(run.checkpoints) if c.is_intact()] == [
        20,
        19,
    ]
    assert [row["step"] for row in run.metrics()] == list(range(1, 21))


def test_a_job_that_starts_after_its_launcher_died_does_nothing(small_run: SmallRun) -> None:
    run = small_run()
    assert job([str(run.path), "--launcher", "4194304"]) == INTERRUPTED
    assert run.status().state == "pending"
    assert not run.metrics_file.exists()


JUMPING_CLOCK = """
import random, time
true_time, rng = time.time, random.Random(3)
time.time = lambda: true_time() + rng.choice((-86400.0, 0.0, 86400.0))
"""


@pytest.mark.slow
def test_a_clock_that_jumps_changes_no_results(small_job: list[str], tmp_path: Path) -> None:
    assert posenc(["train", *small_job, "name=uninterrupted"]) == 0
    (uninterrupted,) = list_runs(tmp_path / "outputs" / "uninterrupted")
    (tmp_path / "sitecustomize.py").write_text(JUMPING_CLOCK)
    result = subprocess.run(
        [sys.executable, "-m", "posenc", "train", *small_job, "name=jumping", "logger=wandb"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}"},
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"finished in \d?\d:\d\d\n", result.stderr), result.stderr  # without the jumps
    run = RunDirectory(uninterrupted.path.parents[1] / "jumping" / uninterrupted.name)
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
    assert sums(run) == sums(uninterrupted)
    assert posenc(["status", f"outputs_dir={run.path.parents[1]}", "name=jumping"]) == 0


@pytest.mark.slow
def test_code_edited_during_a_sweep_does_not_affect_its_jobs(
    small_run: SmallRun, tmp_path: Path
) -> None:
    """The package that the launcher imported is broken once the first of two runs has started."""
    runs = [small_run(f"seed={seed}", "tokens=19200") for seed in (1, 2)]
    package = tmp_path / "package"
    shutil.copytree(PACKAGE, package / "posenc")
    code = (
        "import sys; from pathlib import Path;"
        "from posenc.runs.run_directory import RunDirectory;"
        "from posenc.sweeps.launcher import PlannedRun;"
        "from posenc.sweeps.pool import PoolLauncher;"
        "PoolLauncher(1).launch([PlannedRun(RunDirectory(Path(p))) for p in sys.argv[1:]])"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, *(str(run.path) for run in runs)],
        env=os.environ | {"PYTHONPATH": str(package)},
        cwd=tmp_path,
    )
    while runs[0].status().state == "pending":
        assert launcher.poll() is None
        time.sleep(0.02)
    for file in ("run_job", "job"):
        write_atomic(package / "posenc" / "jobs" / f"{file}.py", "raise SystemExit('edited')\n")
    assert launcher.wait() == 0
    assert [run.status().state for run in runs] == ["finished", "finished"]
    assert len({run.status().resolved["code"] for run in runs}) == 1


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch code_was_run",)


def test_a_malicious_checkpoint_runs_no_code(
    small_run: SmallRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its name and digest are valid, but its content is a pickle that calls os.system."""
    monkeypatch.chdir(tmp_path)
    run = small_run()
    payload = {"state_dict": {"model.x": Malicious()}, "global_step": 7}
    checkpoint.save_checkpoint(run.checkpoints, 7, lambda path: torch.save(payload, path))
    for step in range(1, 8):
        append_jsonl(run.metrics_file, {"step": step, "tokens": 192 * step, "loss": 1.0})
    assert job([str(run.path)]) == FAILED
    assert "is not a checkpoint of this run" in str(run.status().error)
    for path in run.checkpoints.iterdir():
        path.unlink()
    checkpoint.save_checkpoint(run.checkpoints, 40, lambda path: torch.save(payload, path))
    assert posenc(["evaluate", f"run={run.path}"]) == 1
    message = capsys.readouterr().err
    assert "is not a checkpoint of this run" in message and "Traceback" not in message
    assert not (tmp_path / "code_was_run").exists()


@pytest.mark.parametrize("damage", [lambda data: data[100:], lambda data: data[:-100]])
def test_a_corrupt_checkpoint_with_a_valid_digest_is_named(
    small_run: SmallRun, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    run = small_run()
    buffer = io.BytesIO()
    torch.save({"state_dict": {"model.x": torch.zeros(300)}}, buffer)
    corrupt = damage(buffer.getvalue())

    def write(path: Path) -> None:
        path.write_bytes(corrupt)

    saved = checkpoint.save_checkpoint(run.checkpoints, 7, write)
    for step in range(1, 8):
        append_jsonl(run.metrics_file, {"step": step, "tokens": 192 * step, "loss": 1.0})
    assert job([str(run.path)]) == FAILED
    error = str(run.status().error)
    assert saved.path.name in error and "is not a checkpoint of this run" in error
    assert "Traceback" not in caplog.text
