"""Lightning's profilers, in runs of 8 steps in this process."""

from collections.abc import Callable

import pytest

from posenc.config.compose import compose
from posenc.config.identity import identity, short_hash
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.run_job import run_job
from posenc.runs.run_directory import RunDirectory
from posenc.training.stop import StopRequest

SHORT = ["tokens=1536", "validation.every_tokens=null", "model.layers=1", "ngram_order=null"]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("simple", "run_training_batch"),
        ("advanced", "cumtime"),
        ("pytorch", "CPU total"),
    ],
)
def test_a_profiler_writes_to_the_run_directory(
    small_run: Callable[..., RunDirectory], option: str, expected: str
) -> None:
    run = small_run(*SHORT, f"profiler={option}")
    assert run_job(run, 1, [], StopRequest(lambda: True)) == FINISHED, run.status().error
    (report,) = (run.path / "profile").glob("*.txt")
    assert expected in report.read_text()


def test_a_profiler_does_not_change_the_run_hash() -> None:
    digests = [
        short_hash(identity(compose("train", [f"profiler={option}"]), "f00d"))
        for option in ("none", "simple")
    ]
    assert digests[0] == digests[1]
