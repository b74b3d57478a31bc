"""The status of a run directory, and runs of earlier versions."""

from pathlib import Path

import pytest

from posenc.config.errors import RunError
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


def test_a_run_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.config_file.write_text("encoding: {}\nfrozen: {hash: f00d, posenc: 0.1.0}\n")
    with pytest.raises(RunError, match="created by an earlier version of posenc"):
        run.config()
