"""Run directories whose jobs are fake: `fake_job.py` does what their `behaviour.txt` says."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status


@pytest.fixture
def fake_job() -> list[str]:
    """The command of a fake job."""
    return [sys.executable, str(Path(__file__).with_name("fake_job.py"))]


@pytest.fixture
def fake_run(tmp_path: Path) -> Callable[..., RunDirectory]:
    """Makes a run directory with a behaviour and, if status fields are given, a status."""

    def make(name: str, behaviour: str = "finish", **status: object) -> RunDirectory:
        run = RunDirectory(tmp_path / "outputs" / "trial" / name)
        run.path.mkdir(parents=True)
        run.config_file.write_text("seed: 1\n")
        (run.path / "behaviour.txt").write_text(behaviour)
        if status:
            Status(**status).write(run.status_file)  # type: ignore[arg-type]
        return run

    return make
