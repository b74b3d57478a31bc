"""The examples of custom components in the docs, copied into an empty folder and run."""

import re
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.config.grids import sweep_jobs
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.run_job import run_job
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan
from posenc.training.stop import StopRequest

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r"^`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^posenc train --config-dir my_conf (.*)$", re.MULTILINE)
SHORT = ["tokens=1920", "batch_tokens=192", "ngram_order=null"]


def sections(page: str) -> dict[str, str]:
    """Return the text of each section of a page that contains a file, by the section's heading."""
    texts = re.split(r"^## ", (DOCS / page).read_text(), flags=re.MULTILINE)[1:]
    return {text.partition("\n")[0]: text for text in texts if FILE.search(text)}


EXAMPLES = {**sections("extending.md"), **sections("training.md")}


@pytest.fixture
def trained(
    request: pytest.FixtureRequest,
    small_job: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> list[RunDirectory]:
    """The finished runs of the commands in the section `request.param`."""
    section = EXAMPLES[request.param]
    for path, text in FILE.findall(section):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    commands = COMMAND.findall(section)
    assert commands
    return [run for command in commands for run in train(shlex.split(command), small_job)]


def train(words: list[str], small_job: list[str]) -> list[RunDirectory]:
    has_own_data = any(word.startswith("data=") for word in words)
    text_keys = [word for word in small_job if has_own_data and word.startswith("data.")]
    overrides = [*(word for word in small_job if word not in text_keys), *words, *SHORT]
    planned = plan(sweep_jobs("train", overrides, [Path("my_conf")]), [Path("my_conf")], "", print)
    for job in planned:
        exit_code = run_job(job.run, 1, list(job.modules), StopRequest(lambda: True))
        assert exit_code == FINISHED, job.run.status().error
    return [job.run for job in planned]


CASES = [
    (
        "An encoding",
        "encoding._target_",
        {"my_encoding.LearnedSquareRoot", "posenc.encodings.alibi.Alibi"},
    ),
    ("A model", "model._target_", {"my_model.Centered"}),
    ("A dataset", "data._target_", {"my_data.Counting"}),
    ("An experiment", "choices.encoding", {"alibi", "rope"}),
    ("An optimizer", "optimizer._target_", {"my_optimizer.SignSGD"}),
    ("A callback", "callbacks.weight_norm._target_", {"my_callback.WeightNorm"}),
    (
        "Optimizers and schedules",
        "schedule._target_",
        {"torch.optim.lr_scheduler.StepLR", "my_schedule.warmup_then_decay"},
    ),
    ("Callbacks", "callbacks.weight_ema.decay", {0.999}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("trained", "key", "expected"), CASES, indirect=["trained"])
def test_an_example_runs_as_written(
    trained: list[RunDirectory], key: str, expected: set[str]
) -> None:
    assert {OmegaConf.select(run.config(), key) for run in trained} == expected
    for run in trained:
        assert len(run.metrics()) == 10 and run.rows()


@pytest.mark.parametrize("trained", ["A callback"], indirect=True)
def test_the_callback_logs_a_value_in_every_step(trained: list[RunDirectory]) -> None:
    assert all(row["weight_norm"] > 0 for row in trained[0].metrics())


def test_every_section_with_a_file_is_run() -> None:
    assert {section for section, *_ in CASES} == EXAMPLES.keys()
