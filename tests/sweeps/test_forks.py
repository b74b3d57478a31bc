"""Jobs that are forked from a process which has imported what they need."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.exits import FINISHED, INTERRUPTED
from posenc.sweeps.forks import JOB, Starter, starter_of
from posenc.sweeps.job import main as job
from posenc.sweeps.machine import cores
from posenc.sweeps.pool import Pool
from posenc.sweeps.process import JobProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux")
SmallRun = Callable[..., RunDirectory]
LONG = ["tokens=768000", "validation.every_tokens=192000"]


@pytest.fixture
def starter() -> Iterator[Starter]:
    started = Starter(None)
    yield started
    started.close()


def process_of(run: RunDirectory, starter: Starter) -> JobProcess:
    return JobProcess(JOB, run, [], threads=1, gpu=None, starter=starter)


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def pid_of(process: JobProcess) -> int:
    """Once it has been forked."""
    fork = process._process
    until(lambda: process.ended() or fork.pid)
    assert fork.pid is not None
    return fork.pid


def test_only_jobs_of_posenc_on_a_cpu_are_forked() -> None:
    assert starter_of(["sh", "-c", "true"], [], None) is None
    assert starter_of(JOB, ["0"], None) is None


def test_a_forked_job_makes_the_run_of_a_started_one(small_run: SmallRun, starter: Starter) -> None:
    runs = [small_run("name=forked", f"seed={seed}") for seed in (1, 2)]
    others = [small_run("name=started", f"seed={seed}") for seed in (1, 2)]
    processes = [process_of(run, starter) for run in runs]
    assert [job([str(run.path)]) for run in others] == [FINISHED, FINISHED]
    for process in processes:
        process.wait()
        assert process.outcome().state == "finished"
    for run, other in zip(runs, others, strict=True):
        assert run.metrics_file.read_text() == other.metrics_file.read_text()
        assert [row["sum"] for row in run.rows()] == [row["sum"] for row in other.rows()]
        assert "trained to its end" in run.log_file.read_text()


def test_it_is_a_session_of_its_own_with_its_own_environment(
    small_run: SmallRun, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = process_of(run := small_run(*LONG), starter)
    pid = pid_of(process)
    until(run.metrics)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/1") == str(run.log_file)
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert not any("socket" in os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir())
    process.terminate()
    process.wait()
    assert process._process.returncode == INTERRUPTED
    assert process.outcome().state == run.status().state == "interrupted"


def test_what_is_asked_of_it_before_it_is_there_is_done_then(
    small_run: SmallRun, starter: Starter
) -> None:
    process = process_of(small_run(*LONG), starter)
    process.terminate()
    process.wait()
    assert process._process.returncode in (-signal.SIGTERM, INTERRUPTED)


def test_to_kill_it_before_it_is_there_waits_for_no_import(
    small_run: SmallRun, starter: Starter
) -> None:
    process = process_of(small_run(*LONG), starter)
    process.kill()
    process.wait()
    assert process.killed and process.outcome().state == "interrupted" and starter.gone


def test_signals_for_everybody_do_not_take_the_starter_away(
    small_run: SmallRun, starter: Starter
) -> None:
    process = process_of(run := small_run(*LONG), starter)
    until(run.metrics)
    os.kill(starter.pid, signal.SIGTERM)
    os.kill(pid_of(process), signal.SIGTERM)
    process.wait()
    assert process._process.returncode == INTERRUPTED and not starter.gone


def test_a_killed_job_is_told_by_its_signal(small_run: SmallRun, starter: Starter) -> None:
    process = process_of(run := small_run(*LONG), starter)
    until(run.metrics)
    process.kill()
    process.wait()
    assert process.killed and process.outcome().state == "interrupted"


@pytest.mark.slow
def test_jobs_whose_starter_is_killed_checkpoint_and_are_started_again(
    small_run: SmallRun,
) -> None:
    words = ["tokens=38400", "validation.every_tokens=19200", "checkpoint.every_seconds=0.5"]
    run, undisturbed = small_run(*words, "name=killed"), small_run(*words, "name=undisturbed")
    assert job([str(undisturbed.path), "--threads", str(cores())]) == FINISHED
    launcher = f"""
import sys
from posenc.sweeps.pool import Pool
print({{o.state for o in Pool(1).launch([[{str(run.path)!r}]]).values()}})
"""
    with subprocess.Popen(
        [sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True
    ) as process:
        until(run.metrics)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            if b"posenc.sweeps.starter" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)
        said, _ = process.communicate()
    assert said == "{'finished'}\n"
    assert run.log_file.read_text().count("INFO posenc ") == 2
    assert run.metrics_file.read_text() == undisturbed.metrics_file.read_text()


@pytest.mark.slow
def test_a_starter_that_cannot_import_is_done_without(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "posenc.sweeps.forks.STARTER", (sys.executable, "-c", "raise SystemExit(1)")
    )
    run = small_run()
    console = Console(file=io.StringIO())
    assert Pool(1, console=console).launch([[str(run.path)]])[run.name].state == "finished"
