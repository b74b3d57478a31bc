"""Very small trained runs in one experiment's folder."""

from pathlib import Path

import pytest

from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan

MODEL = {"width": 32, "layers": 2, "heads": 4, "feed_forward": 64}


@pytest.fixture(scope="session")
def job_overrides(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The overrides of a run that trains in seconds: 40 steps at L = 24."""
    return [
        *(f"model.{name}={value}" for name, value in MODEL.items()),
        "train_length=24",
        "tokens=7680",
        "batch_tokens=192",
        "name=trial",
        "data=text",
        f"data.train={corpus}/train.txt",
        f"data.validation={corpus}/test.txt",
        "tokenizer=byte",
        "validation.every_tokens=null",
        "trainer=cpu",
        "logger=none",
        "evaluation.lengths=[24]",
        "evaluation.protocols=[nonoverlapping]",
        f"outputs_dir={tmp_path_factory.mktemp('api')}/outputs",
    ]


@pytest.fixture(scope="session")
def trained_runs(job_overrides: list[str]) -> dict[str, RunDirectory]:
    """Trained runs by encoding; `learned` has no positions beyond the training length."""
    jobs = [[*job_overrides, f"encoding={name}"] for name in ("rope", "learned")]
    runs = [planned.run for planned in plan(jobs, [], "test", print)]
    for run in runs:
        assert job([str(run.path)]) == FINISHED, run.status().error
    return {run.config().choices.encoding: run for run in runs}
