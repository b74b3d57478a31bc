"""Jobs forked by multiprocessing's fork server behave like jobs in a new interpreter."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path

import pytest

from posenc.config.errors import RunError
from posenc.jobs.exit_codes import FINISHED, INTERRUPTED
from posenc.jobs.job import main as job
from posenc.runs.code_snapshot import code_digest, is_intact_copy, snapshot_code
from posenc.runs.hardware import cores
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.job_process import JobProcess
from posenc.sweeps.launcher import PlannedRun

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux")
SmallRun = Callable[..., RunDirectory]
LONG = ["tokens=768000", "validation.every_tokens=192000"]


def fork(run: RunDirectory, code: Path | None = None) -> JobProcess:
    return JobProcess(PlannedRun(run), threads=1, code=code, fork=True)


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def process_id(process: JobProcess) -> int:
    pid = process._process.pid
    assert pid is not None
    return pid


@pytest.mark.slow
def test_a_forked_job_has_the_results_of_a_job_in_this_process(small_run: SmallRun) -> None:
    forked = [small_run("name=forked", f"seed={seed}") for seed in (1, 2)]
    direct = [small_run("name=direct", f"seed={seed}") for seed in (1, 2)]
    processes = [fork(run) for run in forked]
    assert [job([str(run.path)]) for run in direct] == [FINISHED, FINISHED]
    for process in processes:
        assert process.outcome().state == "finished"
    for run, other in zip(forked, direct, strict=True):
        assert run.metrics_file.read_text() == other.metrics_file.read_text()
        assert [row["sum"] for row in run.rows()] == [row["sum"] for row in other.rows()]
        assert "training finished" in run.log_file.read_text()


@pytest.mark.parametrize(
    "name",
    [
        "posenc/__init__.py",
        "posenc/extra.py",
        "posenc/__pycache__/__init__.cpython-311.pyc",
        "posenc/conf/__init__.py",
        "sitecustomize.py",
    ],
)
def test_a_copy_of_the_code_with_other_contents_is_replaced(tmp_path: Path, name: str) -> None:
    """A crash of the machine may leave empty files, and another user may have added code."""
    code = snapshot_code(tmp_path)
    files = {path: path.read_bytes() for path in code.rglob("*") if path.is_file()}
    (code / name).parent.mkdir(exist_ok=True)
    (code / name).write_text("")
    assert snapshot_code(tmp_path) == code
    assert files == {path: path.read_bytes() for path in code.rglob("*") if path.is_file()}
    assert [path.name for path in code.parent.iterdir()] == [code.name] == [code_digest()]


def test_a_symlink_that_could_shadow_a_module_is_removed(tmp_path: Path) -> None:
    """Python imports a package in preference to a module of the same name."""
    code = snapshot_code(tmp_path / "sweep")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('code was run')")
    link = code / "posenc" / "runs" / "files"
    link.symlink_to(package)
    assert snapshot_code(tmp_path / "sweep") == code
    assert not link.exists() and (package / "__init__.py").exists()
    moved = code.rename(tmp_path / "moved")
    code.symlink_to(moved)
    assert snapshot_code(tmp_path / "sweep") == code
    assert not code.is_symlink() and moved.exists()


def test_code_that_was_edited_after_planning_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.IMPORT_TIME", 0.0)
    with pytest.raises(RunError, match="has been modified since"):
        snapshot_code(tmp_path)


def test_only_a_copy_without_links_and_edits_is_intact(tmp_path: Path) -> None:
    code = snapshot_code(tmp_path)
    assert is_intact_copy(code) and not is_intact_copy(tmp_path / "None")
    (tmp_path / "secret").write_text("password")
    (code / "posenc" / "notes.py").symlink_to(tmp_path / "secret")
    assert not is_intact_copy(code)
    (code / "posenc" / "notes.py").unlink()
    assert is_intact_copy(code)
    (code / "posenc" / "notes.py").write_text("")
    assert not is_intact_copy(code)


def test_an_intact_copy_of_the_code_is_kept(tmp_path: Path) -> None:
    inode = snapshot_code(tmp_path).stat().st_ino
    assert snapshot_code(tmp_path).stat().st_ino == inode


@pytest.mark.slow
def test_a_forked_job_has_its_own_session_log_and_code(small_run: SmallRun) -> None:
    run = small_run(*LONG)
    code = snapshot_code(run.path.parent)
    with (code / "posenc" / "__init__.py").open("a") as file:
        file.write("# an edit that changes the digest\n")
    process = fork(run, code)
    pid = process_id(process)
    wait_until(run.metrics)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/1") == str(run.log_file)
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert run.status().resolved["code"] not in ("", code_digest())
    process.terminate()
    process.wait()
    assert process.exit_code == INTERRUPTED
    assert process.outcome().state == run.status().state == "interrupted"


def test_a_job_can_be_terminated_as_soon_as_it_is_forked(small_run: SmallRun) -> None:
    process = fork(small_run(*LONG))
    process.terminate()
    process.wait()
    assert process.exit_code in (-signal.SIGTERM, INTERRUPTED)


def test_a_job_can_be_killed_as_soon_as_it_is_forked(small_run: SmallRun) -> None:
    process = fork(small_run(*LONG))
    process.kill()
    assert process.outcome().state == "interrupted" and process.killed


@pytest.mark.slow
def test_the_fork_server_ignores_stop_signals(small_run: SmallRun) -> None:
    run = small_run(*LONG)
    process = fork(run)
    wait_until(run.metrics)
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(server, signum)
    os.kill(process_id(process), signal.SIGTERM)
    process.wait()
    assert process.exit_code == INTERRUPTED
    assert "zombie" not in Path(f"/proc/{server}/status").read_text()


@pytest.mark.slow
def test_a_killed_job_is_reported_with_its_signal(small_run: SmallRun) -> None:
    run = small_run(*LONG)
    process = fork(run)
    wait_until(run.metrics)
    process.kill()
    outcome = process.outcome()
    assert process.killed and outcome.state == "interrupted"
    assert "SIGKILL" in str(outcome.error)


@pytest.mark.slow
def test_a_forked_job_checkpoints_when_its_launcher_dies(small_run: SmallRun) -> None:
    run = small_run(*LONG)
    launcher = f"""
import time
from pathlib import Path
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.job_process import JobProcess
from posenc.sweeps.launcher import PlannedRun
JobProcess(PlannedRun(RunDirectory(Path({str(run.path)!r}))), threads=1, fork=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", launcher]) as process:
        wait_until(run.metrics)
        process.kill()
    wait_until(lambda: run.status().state == "interrupted")
    assert run.status().error == "its launcher died"
    assert list(run.checkpoints.glob("*.ckpt"))


@pytest.mark.slow
def test_a_run_whose_fork_server_is_killed_has_the_same_results(small_run: SmallRun) -> None:
    common = ["tokens=38400", "validation.every_tokens=19200", "checkpoint.every_seconds=0.5"]
    run, uninterrupted = small_run(*common, "name=killed"), small_run(*common, "name=uninterrupted")
    assert job([str(uninterrupted.path), "--threads", str(cores())]) == FINISHED
    launcher = f"""
from pathlib import Path
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.pool import PoolLauncher
run = PlannedRun(RunDirectory(Path({str(run.path)!r})))
print({{status.state for status in PoolLauncher(1).launch([run]).values()}})
"""
    with subprocess.Popen(
        [sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True
    ) as process:
        wait_until(run.metrics)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        (server,) = [child for child, command in commands.items() if b"forkserver" in command]
        os.kill(int(server), signal.SIGKILL)
        output, _ = process.communicate()
    assert output == "{'finished'}\n"
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
