"""The pool launcher with fake jobs: concurrency, restarts, threads, GPUs, signals and output."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from posenc.config.console import Console
from posenc.config.errors import ConfigError
from posenc.runs.files import read_jsonl
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps import pool
from posenc.sweeps.job_process import JobProcess
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.pool import MAX_STARTS, PoolLauncher
from posenc.training.checkpoint import save_checkpoint

FakeRun = Callable[..., RunDirectory]
LAUNCHER = """
import signal, sys
from pathlib import Path
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.pool import PoolLauncher
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
PoolLauncher(2, command=sys.argv[1:3], poll_seconds=0.02).launch(
    [PlannedRun(RunDirectory(Path(path))) for path in sys.argv[3:]]
)
"""


def launch(
    command: list[str],
    *runs: RunDirectory,
    jobs: int | None = None,
    finished: int = 0,
    devices: int = 1,
) -> tuple[dict[str, Status], str]:
    """Launch runs; return their outcomes and the output."""
    console = Console(file=io.StringIO(), width=80)
    pool = PoolLauncher(jobs, console=console, command=command, poll_seconds=0.02)
    outcomes = pool.launch([PlannedRun(run, devices=devices) for run in runs], finished)
    return outcomes, console.file.getvalue()  # type: ignore[attr-defined]


def events(run: RunDirectory, kind: str = "start") -> dict[str, dict[str, Any]]:
    rows = read_jsonl(run.path.parent / "events.jsonl")
    return {row["run"]: row for row in rows if row["event"] == kind}


@pytest.mark.slow
def test_the_requested_number_of_jobs_runs_at_a_time(
    fake_run: FakeRun, fake_job: list[str]
) -> None:
    runs = [fake_run(f"run-{i}", "meet") for i in range(5)]
    outcomes, _ = launch(fake_job, *runs, jobs=2)
    assert {status.state for status in outcomes.values()} == {"finished"}
    active, max_active = 0, 0
    for row in read_jsonl(runs[0].path.parent / "events.jsonl"):
        active += 1 if row["event"] == "start" else -1
        max_active = max(max_active, active)
    assert max_active == 2


@pytest.mark.slow
def test_a_failed_run_does_not_stop_the_others(fake_run: FakeRun, fake_job: list[str]) -> None:
    behaviours = ["fail", "crash", "killed", "finish"]
    runs = {behaviour: fake_run(behaviour, behaviour) for behaviour in behaviours}
    outcomes, printed = launch(fake_job, *runs.values(), jobs=1)
    states = {name: status.state for name, status in outcomes.items()}
    assert states == {
        "fail": "failed",
        "crash": "failed",
        "killed": "interrupted",
        "finish": "finished",
    }
    assert "SIGKILL" in (outcomes["killed"].error or "")
    assert "✗ fail  failed: RunError: the loss is not a number" in printed
    assert "1 of 4 finished, 2 failed, 1 interrupted" in printed
    assert "retry=true" in printed


@pytest.mark.slow
def test_a_run_whose_process_is_killed_is_restarted(fake_run: FakeRun, fake_job: list[str]) -> None:
    """A launch starts a run at most MAX_STARTS times."""
    run, once = fake_run("killed", "killed"), fake_run("once", "killed once")
    outcomes, printed = launch(fake_job, run, once, jobs=1)
    rows = [row["run"] for row in read_jsonl(run.path.parent / "events.jsonl")]
    assert (rows.count("killed"), rows.count("once")) == (MAX_STARTS, 3)  # two starts and an end
    assert outcomes["killed"].state == "interrupted" and outcomes["once"].state == "finished"
    assert printed.count("↻ killed  its process was killed (SIGKILL)") == MAX_STARTS - 1
    assert "2 of 2" not in printed and "1 of 2 finished, 1 interrupted" in printed


def test_a_crash_without_a_status_is_recorded_with_the_last_line_of_its_log(
    fake_run: FakeRun, fake_job: list[str]
) -> None:
    run = fake_run("crash", "crash")
    launch(fake_job, run)
    assert run.status().state == "failed"
    assert run.status().error == "its process exited with code 1: boom: [no] such thing"
    assert run.log_file.read_text() == "working on crash\nboom: [no] such thing\n"


def test_an_old_failure_is_not_mistaken_for_that_of_a_new_start(
    fake_run: FakeRun, fake_job: list[str]
) -> None:
    run = fake_run("again", "crash", state="failed", error="an old error", updated=1.0)
    outcomes, _ = launch(fake_job, run)
    assert "boom" in (outcomes["again"].error or "")


@pytest.mark.slow
def test_several_starts_append_to_one_log(fake_run: FakeRun, fake_job: list[str]) -> None:
    run = fake_run("twice")
    launch(fake_job, run)
    launch(fake_job, run)
    assert run.log_file.read_text() == "working on twice\n" * 2


@pytest.mark.slow
@pytest.mark.parametrize(("state", "starts"), [("finished", 0), ("failed", 0), ("interrupted", 1)])
def test_the_launcher_waits_for_a_run_of_another_process(
    fake_run: FakeRun, fake_job: list[str], state: str, starts: int
) -> None:
    """A run that finishes or fails there keeps that outcome; an interrupted one is resumed here."""
    taken, free = fake_run("taken", state="running", work_done=0.3), fake_run("free")
    acquired = threading.Event()

    def other_process() -> None:
        with lock(taken.lock_file, timeout=0):
            acquired.set()
            wait_until(lambda: Status.read(free.status_file).state == "finished")
            time.sleep(0.2)
            assert "taken" not in events(free)
            Status(state=state, work_done=0.3).write(taken.status_file)  # type: ignore[arg-type]

    with ThreadPoolExecutor() as threads:
        other = threads.submit(other_process)
        acquired.wait()
        outcomes, printed = launch(fake_job, taken, free)
        other.result()
    assert outcomes["taken"].state == ("finished" if starts else state)
    assert ("taken" in events(free)) == bool(starts)
    holder = "another thread of this process"
    assert printed.count(f"taken  is being run by {holder}; waiting for it") == 1


@pytest.mark.slow
def test_the_status_of_a_waiting_run_is_read_once(
    fake_run: FakeRun, fake_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it whenever progress is computed would be slow with thousands of runs."""
    first, second, waiting = (fake_run(name) for name in ("first", "second", "waiting"))
    reads, read = [], Status.read

    def counted(file: Path) -> Status:
        if file == waiting.status_file and "second" not in events(first, "end"):
            reads.append(file)
        return read(file)

    monkeypatch.setattr(Status, "read", counted)
    outcomes, _ = launch(fake_job, first, second, waiting, jobs=1)
    assert len(reads) == 1
    assert outcomes["waiting"].state == "finished"


def test_jobs_share_the_cores_but_a_resumed_run_keeps_its_threads(
    fake_run: FakeRun, fake_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.sweeps.pool.cores", lambda: 9)
    fresh = fake_run("fresh")
    resumed = fake_run("resumed", state="interrupted", resolved={"threads": 3})
    launch(fake_job, fresh, resumed, jobs=2)
    started = events(fresh)
    launcher = ["--launcher", str(os.getpid())]
    assert started["fresh"]["argv"] == [str(fresh.path), "--threads", "4", *launcher]
    assert started["fresh"]["OMP_NUM_THREADS"] == started["fresh"]["MKL_NUM_THREADS"] == "4"
    assert started["resumed"]["argv"][1:] == ["--threads", "3", *launcher]
    assert started["resumed"]["OMP_NUM_THREADS"] == "3"


def test_more_jobs_than_cores_have_one_thread_each(
    fake_run: FakeRun, fake_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.sweeps.pool.cores", lambda: 1)
    runs = [fake_run(f"run-{i}", "meet") for i in range(2)]
    launch(fake_job, *runs, jobs=2)
    assert {row["OMP_NUM_THREADS"] for row in events(runs[0]).values()} == {"1"}


def test_each_run_has_its_own_gpu(
    fake_run: FakeRun, fake_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    runs = [fake_run(f"run-{i}", "meet") for i in range(2)]
    _, printed = launch(fake_job, *runs)
    assert sorted(row["CUDA_VISIBLE_DEVICES"] for row in events(runs[0]).values()) == ["4", "7"]
    assert "2 at a time" in printed and "1 GPU each" in printed


def test_a_job_does_not_import_from_the_current_folder(
    fake_run: FakeRun, fake_job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user_encoding.py").touch()
    run = fake_run("importing", "import user_encoding")
    monkeypatch.chdir(tmp_path)
    outcomes, _ = launch(fake_job, run)
    assert outcomes["importing"].state == "failed"
    assert "No module named 'user_encoding'" in run.log_file.read_text()


def test_trusted_modules_are_passed_to_the_job(fake_run: FakeRun, fake_job: list[str]) -> None:
    run = fake_run("run")
    pool = PoolLauncher(console=Console(file=io.StringIO()), command=fake_job, poll_seconds=0.02)
    pool.launch([PlannedRun(run, ("mine",))])
    assert events(run)["run"]["argv"][1] == "--module=mine"


def test_a_log_file_gets_a_line_for_each_start_and_end(
    fake_run: FakeRun, fake_job: list[str]
) -> None:
    new, begun = fake_run("new"), fake_run("begun", state="interrupted", work_done=0.25)
    save_checkpoint(begun.checkpoints, 200, Path.touch)
    _, printed = launch(fake_job, new, begun, jobs=1, finished=2)
    lines = printed.splitlines()
    assert lines[0].startswith("4 runs: 2 already finished, 2 to run (1 at a time, ")
    assert lines[1] == "▶ new  started"
    assert lines[2].startswith("✓ new  finished in 0:0")
    assert lines[3] == "▶ begun  resumed from step 200"
    assert lines[-1].startswith("4 of 4 finished, in 0:0")


@pytest.mark.parametrize("jobs", [0, -1, "two"])
def test_an_invalid_number_of_jobs_is_an_error(jobs: Any) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.jobs="):
        PoolLauncher(jobs)


def start_launcher(command: list[str], *runs: RunDirectory) -> subprocess.Popen[str]:
    paths = [str(run.path) for run in runs]
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *command, *paths], stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(events(runs[0])) == 2 or launcher.poll() is not None)
    return launcher


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process is alive; a zombie does not count."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_on_a_signal_the_launcher_interrupts_its_runs_and_exits(
    fake_run: FakeRun, fake_job: list[str], signum: signal.Signals
) -> None:
    runs = [fake_run(f"run-{i}", "hold") for i in range(3)]
    launcher = start_launcher(fake_job, *runs)
    children = events(runs[0]).values()
    launcher.send_signal(signum)
    _, printed = launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    assert [run.status().state for run in runs] == ["interrupted", "interrupted", "pending"]
    assert len(children) == 2
    wait_until(lambda: not any(is_alive(child["pid"]) for child in children))
    assert "stopping: waiting for 2 runs to write a checkpoint" in printed
    assert "rerun the same command" in printed


@pytest.mark.slow
def test_on_a_second_signal_the_runs_and_their_children_are_killed(
    fake_run: FakeRun, fake_job: list[str]
) -> None:
    runs = [fake_run(f"run-{i}", "stubborn") for i in range(2)]
    launcher = start_launcher(fake_job, *runs)
    children = events(runs[0]).values()
    while launcher.poll() is None:
        launcher.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, printed = launcher.communicate()
    processes = [child[key] for child in children for key in ("pid", "helper")]
    assert len(processes) == 4
    wait_until(lambda: not any(map(is_alive, processes)))
    assert [run.status().state for run in runs] == ["interrupted", "interrupted"]
    assert "killing 2 runs" in printed


def test_each_job_leads_its_own_process_group(fake_run: FakeRun, fake_job: list[str]) -> None:
    run = fake_run("alone")
    launch(fake_job, run)
    started = events(run)["alone"]
    assert started["group"] == started["pid"] != os.getpgid(0)


def test_a_run_on_two_devices_has_two_gpus(
    fake_run: FakeRun, fake_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,9")
    runs = [fake_run(f"run-{i}", "meet") for i in range(2)]
    _, printed = launch(fake_job, *runs, devices=2)
    assert sorted(row["CUDA_VISIBLE_DEVICES"] for row in events(runs[0]).values()) == ["4,5", "6,7"]
    assert "2 at a time" in printed and "2 GPUs each" in printed


def test_a_waiting_run_that_another_launcher_fails_is_not_started(
    fake_run: FakeRun, fake_job: list[str]
) -> None:
    first, second = fake_run("run-0", "hold"), fake_run("run-1", "finish")

    def fail_second_and_stop_first() -> None:
        while not (first.path.parent / "events.jsonl").exists():
            time.sleep(0.02)
        Status("failed", "elsewhere").write(second.status_file)
        os.kill(events(first)["run-0"]["pid"], signal.SIGTERM)

    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(fail_second_and_stop_first)
        outcomes, _ = launch(fake_job, first, second, jobs=1)
        result.result()
    assert outcomes["run-1"].error == "elsewhere"
    assert "run-1" not in events(first)


def test_a_run_is_started_again_if_the_fork_server_is_killed_while_it_forks(
    fake_run: FakeRun, fake_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [EOFError(), EOFError()]

    def start(*arguments: Any, **options: Any) -> JobProcess:
        if errors:
            raise errors.pop()
        return JobProcess(*arguments, **options)

    monkeypatch.setattr(pool, "JobProcess", start)
    outcomes, _ = launch(fake_job, fake_run("run-0", "finish"))
    assert outcomes["run-0"].state == "finished"
    errors += [EOFError() for _ in range(MAX_STARTS)]
    outcomes, _ = launch(fake_job, fake_run("run-1", "finish"))
    assert outcomes["run-1"].state == "interrupted"
