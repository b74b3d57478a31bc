"""Fixtures for the tests of commands."""

from collections.abc import Callable

import pytest

from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory

SmallRun = Callable[..., RunDirectory]


@pytest.fixture
def finished(small_run: SmallRun) -> RunDirectory:
    """A finished run of two steps, with a checkpoint of each."""
    run = small_run("tokens=384", "checkpoint.every_seconds=0", "evaluation.factors=[1]")
    assert job([str(run.path)]) == FINISHED
    return run
