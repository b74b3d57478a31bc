"""The status of a run directory."""

from pathlib import Path

from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status


def test_a_running_run_without_a_process_is_interrupted(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    assert run.status().state == "pending"
    Status(state="running", step=5).write(run.status_file)
    assert run.status().state == "interrupted"
    with lock(run.lock_file, timeout=0):
        assert run.status().state == "running"
