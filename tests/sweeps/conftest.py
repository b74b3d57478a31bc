"""Experiments whose runs are stand-ins."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status


@pytest.fixture
def stand_in() -> list[str]:
    """The command of a job that does what the run's `behaviour.txt` says."""
    return [sys.executable, str(Path(__file__).with_name("stand_in_job.py"))]


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., RunDirectory]:
    """Plan a run with a behaviour and, where fields are given, a status."""

    def plan(name: str, behaviour: str = "finish", **status: object) -> RunDirectory:
        run = RunDirectory(tmp_path / "outputs" / "trial" / name)
        run.path.mkdir(parents=True)
        run.config_file.write_text("seed: 1\n")
        (run.path / "behaviour.txt").write_text(behaviour)
        if status:
            Status(**status).write(run.status_file)  # type: ignore[arg-type]
        return run

    return plan
