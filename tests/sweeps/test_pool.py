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
from rich.console import Console

from posenc.config.errors import ConfigError
from posenc.runs.files import read_lines
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.pool import MAX_STARTS, PoolLauncher

Planned = Callable[..., RunDirectory]
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
    """How the runs ended, and what was printed."""
    console = Console(file=io.StringIO(), width=80)
    pool = PoolLauncher(jobs, console=console, command=command, poll_seconds=0.02)
    outcomes = pool.launch([PlannedRun(run, devices=devices) for run in runs], finished)
    return outcomes, console.file.getvalue()  # type: ignore[attr-defined]


def events(run: RunDirectory, kind: str = "start") -> dict[str, dict[str, Any]]:
    rows = read_lines(run.path.parent / "events.jsonl")
    return {row["run"]: row for row in rows if row["event"] == kind}


def test_as_many_at_a_time_as_asked_and_no_more(planned: Planned, stand_in: list[str]) -> None:
    runs = [planned(f"run-{i}", "meet") for i in range(5)]
    outcomes, _ = launch(stand_in, *runs, jobs=2)
    assert {status.state for status in outcomes.values()} == {"finished"}
    under_way, most = 0, 0
    for row in read_lines(runs[0].path.parent / "events.jsonl"):
        under_way += 1 if row["event"] == "start" else -1
        most = max(most, under_way)
    assert most == 2


def test_one_failure_stops_nothing_else(planned: Planned, stand_in: list[str]) -> None:
    behaviours = ["fail", "crash", "killed", "finish"]
    runs = {behaviour: planned(behaviour, behaviour) for behaviour in behaviours}
    outcomes, printed = launch(stand_in, *runs.values(), jobs=1)
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


def test_a_run_whose_process_is_killed_is_started_again(
    planned: Planned, stand_in: list[str]
) -> None:
    """As often as MAX_STARTS says in one launch, and at once where there is a free place."""
    run, once = planned("killed", "killed"), planned("once", "killed once")
    outcomes, printed = launch(stand_in, run, once, jobs=1)
    rows = [row["run"] for row in read_lines(run.path.parent / "events.jsonl")]
    assert (rows.count("killed"), rows.count("once")) == (MAX_STARTS, 3)  # twice begun, once ended
    assert outcomes["killed"].state == "interrupted" and outcomes["once"].state == "finished"
    assert printed.count("↻ killed  its process was killed (SIGKILL)") == MAX_STARTS - 1
    assert "2 of 2" not in printed and "1 of 2 finished, 1 interrupted" in printed


def test_a_crash_without_a_word_is_recorded_with_what_it_printed_last(
    planned: Planned, stand_in: list[str]
) -> None:
    run = planned("crash", "crash")
    launch(stand_in, run)
    assert run.status().state == "failed"
    assert run.status().error == "its process ended with exit code 1: boom: [no] such thing"
    assert run.log_file.read_text() == "working on crash\nboom: [no] such thing\n"


def test_an_old_failure_is_not_taken_for_the_new_start(
    planned: Planned, stand_in: list[str]
) -> None:
    run = planned("again", "crash", state="failed", error="an old error", updated=1.0)
    outcomes, _ = launch(stand_in, run)
    assert "boom" in (outcomes["again"].error or "")


def test_logs_of_several_starts_stand_one_after_the_other(
    planned: Planned, stand_in: list[str]
) -> None:
    run = planned("twice")
    launch(stand_in, run)
    launch(stand_in, run)
    assert run.log_file.read_text() == "working on twice\n" * 2


@pytest.mark.parametrize(("ending", "starts"), [("finished", 0), ("failed", 0), ("interrupted", 1)])
def test_a_run_that_another_process_has_is_waited_for(
    planned: Planned, stand_in: list[str], ending: str, starts: int
) -> None:
    """What it ends is taken as it is; what it leaves open goes on here."""
    taken, free = planned("taken", state="running", work_done=0.3), planned("free")
    held = threading.Event()

    def another() -> None:
        with lock(taken.lock_file, wait=False):
            held.set()
            until(lambda: Status.read(free.status_file).state == "finished")
            time.sleep(0.2)
            assert "taken" not in events(free)
            Status(state=ending, work_done=0.3).write(taken.status_file)  # type: ignore[arg-type]

    with ThreadPoolExecutor() as threads:
        other = threads.submit(another)
        held.wait()
        outcomes, printed = launch(stand_in, taken, free)
        other.result()
    assert outcomes["taken"].state == ("finished" if starts else ending)
    assert ("taken" in events(free)) == bool(starts)
    assert printed.count("taken  is being run by another process; waiting for it") == 1


def test_threads_are_shared_out_and_kept_on_resume(
    planned: Planned, stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.sweeps.pool.cores", lambda: 9)
    fresh = planned("fresh")
    resumed = planned("resumed", state="interrupted", resolved={"threads": 3})
    launch(stand_in, fresh, resumed, jobs=2)
    started = events(fresh)
    own = ["--launcher", str(os.getpid())]
    assert started["fresh"]["argv"] == [str(fresh.path), "--threads", "4", *own]
    assert started["fresh"]["OMP_NUM_THREADS"] == started["fresh"]["MKL_NUM_THREADS"] == "4"
    assert started["resumed"]["argv"][1:] == ["--threads", "3", *own]
    assert started["resumed"]["OMP_NUM_THREADS"] == "3"


def test_more_jobs_than_cores_have_a_thread_each(
    planned: Planned, stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.sweeps.pool.cores", lambda: 1)
    runs = [planned(f"run-{i}", "meet") for i in range(2)]
    launch(stand_in, *runs, jobs=2)
    assert {row["OMP_NUM_THREADS"] for row in events(runs[0]).values()} == {"1"}


def test_each_gpu_has_one_run(
    planned: Planned, stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    runs = [planned(f"run-{i}", "meet") for i in range(2)]
    _, printed = launch(stand_in, *runs)
    assert sorted(row["CUDA_VISIBLE_DEVICES"] for row in events(runs[0]).values()) == ["4", "7"]
    assert "2 at a time" in printed and "one GPU each" in printed


def test_the_current_folder_is_importable(
    planned: Planned, stand_in: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_encoding.py").touch()
    run = planned("own", "import my_own_encoding")
    monkeypatch.chdir(tmp_path)
    outcomes, _ = launch(stand_in, run)
    assert outcomes["own"].state == "finished", run.log_file.read_text()


def test_further_arguments_reach_the_job(planned: Planned, stand_in: list[str]) -> None:
    run = planned("more")
    pool = PoolLauncher(console=Console(file=io.StringIO()), command=stand_in, poll_seconds=0.02)
    pool.launch([PlannedRun(run, ("mine",))])
    assert events(run)["more"]["argv"][1:3] == ["--module", "mine"]


def test_what_a_log_file_gets(planned: Planned, stand_in: list[str]) -> None:
    new, begun = planned("new"), planned("begun", state="interrupted", work_done=0.25)
    _, printed = launch(stand_in, new, begun, jobs=1, finished=2)
    lines = printed.splitlines()
    assert lines[0].startswith("4 runs, 2 already finished: 1 at a time, ")
    assert lines[1] == "▶ new  started"
    assert lines[2].startswith("✓ new  finished in 0:0")
    assert lines[3] == "▶ begun  started at 25 %"
    assert lines[-1].startswith("4 of 4 finished, in 0:0")


@pytest.mark.parametrize("jobs", [0, -1, "two"])
def test_a_number_of_jobs_that_cannot_be(jobs: Any) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.jobs="):
        PoolLauncher(jobs)


def start_launcher(command: list[str], *runs: RunDirectory) -> subprocess.Popen[str]:
    paths = [str(run.path) for run in runs]
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *command, *paths], stderr=subprocess.PIPE, text=True
    )
    until(lambda: len(events(runs[0])) == 2 or launcher.poll() is not None)
    return launcher


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie that waits for its parent to take notice."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_the_runs_end_well(
    planned: Planned, stand_in: list[str], number: signal.Signals
) -> None:
    runs = [planned(f"run-{i}", "hold") for i in range(3)]
    launcher = start_launcher(stand_in, *runs)
    children = events(runs[0]).values()
    launcher.send_signal(number)
    _, printed = launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    assert [run.status().state for run in runs] == ["interrupted", "interrupted", "pending"]
    assert len(children) == 2
    until(lambda: not any(is_alive(child["pid"]) for child in children))
    assert "stopping: waiting for 2 runs to write a checkpoint" in printed
    assert "rerun the same command" in printed


def test_asked_twice_they_are_killed_with_all_that_they_started(
    planned: Planned, stand_in: list[str]
) -> None:
    runs = [planned(f"run-{i}", "stubborn") for i in range(2)]
    launcher = start_launcher(stand_in, *runs)
    children = events(runs[0]).values()
    while launcher.poll() is None:
        launcher.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, printed = launcher.communicate()
    processes = [child[key] for child in children for key in ("pid", "helper")]
    assert len(processes) == 4
    until(lambda: not any(map(is_alive, processes)))
    assert [run.status().state for run in runs] == ["interrupted", "interrupted"]
    assert "killing 2 runs" in printed


def test_each_job_leads_a_group_of_its_own(planned: Planned, stand_in: list[str]) -> None:
    run = planned("alone")
    launch(stand_in, run)
    started = events(run)["alone"]
    assert started["group"] == started["pid"] != os.getpgid(0)


def test_a_run_on_two_devices_has_two_gpus(
    planned: Planned, stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,9")
    runs = [planned(f"run-{i}", "meet") for i in range(2)]
    _, printed = launch(stand_in, *runs, devices=2)
    assert sorted(row["CUDA_VISIBLE_DEVICES"] for row in events(runs[0]).values()) == ["4,5", "6,7"]
    assert "2 at a time" in printed and "2 GPUs each" in printed
