"""Faults, injected for real: what each leaves of its run, what it says, and how the run goes on."""

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from posenc.cli import main as posenc
from posenc.jobs.exit_codes import FINISHED, INTERRUPTED
from posenc.jobs.frozen_code import PACKAGE
from posenc.jobs.job import main as job
from posenc.jobs.run_job import FAILED
from posenc.runs.files import write_atomic
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.training import checkpoint

SmallRun = Callable[..., RunDirectory]
GREEDY = '''
import torch
from posenc.encodings.nope import NoPE

class Greedy(NoPE):
    """No position at all; memory for `most` tokens at once."""

    def __init__(self, geometry, *, most):
        super().__init__(geometry)
        self.most = most

    def embed(self, x, pos):
        if x.shape[0] * x.shape[1] > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return x

class Diverging(NoPE):
    def set_training_progress(self, fraction):
        self.factor = 1.0 if fraction <= 0.5 else float("nan")

    def embed(self, x, pos):
        return x * self.factor

class Broken(NoPE):
    def embed(self, x, pos):
        return x * (1 // len([]))
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's own on the path, with encodings that fail."""
    file = tmp_path / "own_faults.py"
    file.write_text(GREEDY)
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    sys.modules.pop("own_faults", None)


def greedy(most: int) -> list[str]:
    return ["encoding=nope", "encoding._target_=own_faults.Greedy", f"+encoding.most={most}"]


def start(run: RunDirectory, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "posenc.jobs.job", str(run.path), *words]
    with run.log_file.open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment)


def sums(run: RunDirectory) -> list[tuple[int, float, int]]:
    return [(row["length"], row["sum"], row["count"]) for row in run.rows()]


def test_out_of_memory_in_training_names_the_batch_and_the_remedy_works(
    small_run: SmallRun, own: Path
) -> None:
    run = small_run(*greedy(100))
    assert job([str(run.path), "--module", "own_faults"]) == FAILED
    error = run.status().error
    assert error is not None and "192 tokens at once (8 x train_length=24)" in error
    assert "micro_batch_tokens=96 retry=true" in error and "2.00 GiB" in error
    again = small_run(*greedy(100), "micro_batch_tokens=96")
    assert again.path == run.path
    assert job([str(run.path), "--module", "own_faults"]) == FAILED
    assert "evaluation.batch_tokens=" in str(run.status().error)
    small_run(*greedy(100), "micro_batch_tokens=96", "evaluation.batch_tokens=96")
    assert job([str(run.path), "--module", "own_faults"]) == FINISHED


def test_out_of_memory_in_evaluation_halves_the_batch_and_goes_on(
    small_run: SmallRun, own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Validation, which is measured in the same batches, is off."""
    overrides = ["validation.every_tokens=null", "evaluation.batch_tokens=1000"]
    run = small_run(*greedy(200), *overrides)
    with caplog.at_level(logging.WARNING):
        assert job([str(run.path), "--module", "own_faults"]) == FINISHED
    assert "out of memory with evaluation.batch_tokens=984; continuing with 480" in caplog.text
    roomy = small_run(*greedy(5000), *overrides)
    assert job([str(roomy.path), "--module", "own_faults"]) == FINISHED
    for small, large in zip(run.rows(), roomy.rows(), strict=True):
        assert small["tokens_hash"] == large["tokens_hash"]
        assert small["sum"] == pytest.approx(large["sum"], rel=1e-6)


def test_a_window_that_does_not_fit_is_named(small_run: SmallRun, own: Path) -> None:
    run = small_run(*greedy(192), "validation.every_tokens=null", "evaluation.factors=[1,16]")
    assert job([str(run.path), "--module", "own_faults"]) == FAILED
    assert "out of memory with one window of 384 tokens" in str(run.status().error)
    assert {row["length"] for row in run.rows()} == {24}


def test_an_exception_inside_an_encoding_is_told_with_its_line(
    small_run: SmallRun, own: Path
) -> None:
    run = small_run("encoding=nope", "encoding._target_=own_faults.Broken")
    run.lock_file.write_text("4194304\n")  # stale: its writer is gone
    assert job([str(run.path), "--module", "own_faults"]) == FAILED
    line = GREEDY.splitlines().index("        return x * (1 // len([]))") + 1
    error = run.status().error
    assert error is not None and f"(own_faults.py, line {line}, embed)" in error


def test_an_encoding_edited_since_it_was_planned_is_refused(small_run: SmallRun, own: Path) -> None:
    run = small_run(*greedy(5000))
    own.write_text(GREEDY.replace("return x\n", "return 2 * x\n"))
    process = start(run, "--module", "own_faults", PYTHONPATH=f"{own.parent}:{PACKAGE.parent}")
    assert process.wait() == FAILED
    assert "was edited since" in str(run.status().error)
    assert not run.metrics_file.exists()


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_state(
    small_run: SmallRun, own: Path
) -> None:
    """From the 21st of 40 steps on; that the weights of step 20 are good was never seen."""
    diverging = ["encoding=nope", "encoding._target_=own_faults.Diverging"]
    run = small_run(*diverging, "checkpoint.every_seconds=1e-6")
    assert job([str(run.path), "--module", "own_faults"]) == FAILED
    error = run.status().error
    assert error is not None and "the loss is not a number at step 21 (nan)" in error
    assert "the checkpoint of step 19 is kept" in error
    assert [c.step for c in checkpoint.list_checkpoints(run.checkpoints) if c.is_intact()] == [
        20,
        19,
    ]
    assert [row["step"] for row in run.metrics()] == list(range(1, 21))


def test_a_job_whose_launcher_is_gone_before_it_looks_does_nothing(small_run: SmallRun) -> None:
    run = small_run()
    assert job([str(run.path), "--launcher", "4194304"]) == INTERRUPTED
    assert run.status().state == "pending"
    assert not run.metrics_file.exists()


JUMPING = """
import random, time
truth, draw = time.time, random.Random(3)
time.time = lambda: truth() + draw.choice((-86400.0, 0.0, 86400.0))
"""


@pytest.mark.slow
def test_a_clock_that_jumps_changes_nothing(small_job: list[str], tmp_path: Path) -> None:
    assert posenc(["train", *small_job, "name=undisturbed"]) == 0
    (undisturbed,) = list_runs(tmp_path / "outputs" / "undisturbed")
    (tmp_path / "sitecustomize.py").write_text(JUMPING)
    done = subprocess.run(
        [sys.executable, "-m", "posenc", "train", *small_job, "name=jumping", "logger=wandb"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "finished in 0:" in done.stderr
    run = RunDirectory(undisturbed.path.parents[1] / "jumping" / undisturbed.name)
    assert run.metrics_file.read_text() == undisturbed.metrics_file.read_text()
    assert sums(run) == sums(undisturbed)
    assert posenc(["status", f"outputs_dir={run.path.parents[1]}", "name=jumping"]) == 0


@pytest.mark.slow
def test_code_edited_while_a_sweep_runs_reaches_none_of_its_jobs(
    small_run: SmallRun, tmp_path: Path
) -> None:
    """The launcher's package breaks as soon as the first of two runs has begun."""
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


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch code_was_run",)


def test_a_checkpoint_of_others_runs_no_code(
    small_run: SmallRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its name is right, its digest is right, its content is a pickle that calls os.system."""
    monkeypatch.chdir(tmp_path)
    run = small_run()
    payload = {"state_dict": {"model.x": Evil()}, "global_step": 7}
    checkpoint.save_checkpoint(run.checkpoints, 7, lambda path: torch.save(payload, path))
    assert job([str(run.path)]) == FAILED
    assert "is not a checkpoint of this run" in str(run.status().error)
    for path in run.checkpoints.iterdir():
        path.unlink()
    checkpoint.save_checkpoint(run.checkpoints, 40, lambda path: torch.save(payload, path))
    assert posenc(["evaluate", f"run={run.path}"]) == 1
    told = capsys.readouterr().err
    assert "is not a checkpoint of this run" in told and "Traceback" not in told
    assert not (tmp_path / "code_was_run").exists()
