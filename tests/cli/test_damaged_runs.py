"""A run with damaged files is named with the remedy, and does not stop commands on other runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.cli import main
from posenc.config.errors import RunError
from posenc.data.tokenizers import load_tokenizer
from posenc.jobs.exit_codes import FAILED, FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory, read_plan
from posenc.runs.status import Status
from posenc.sweeps.plan import plan
from posenc.tracking.mirror_file import MirrorFile

SmallRun = Callable[..., RunDirectory]


@pytest.mark.parametrize("text", ["{", "[1]", '{"state": 3}', '{"tokens": "many"}', "\xff"])
def test_a_run_with_a_damaged_status_has_failed_until_its_next_start(
    small_run: SmallRun, text: str
) -> None:
    run = small_run()
    run.status_file.write_text(text, encoding="latin-1")
    status = run.status()
    assert status.state == "failed"
    assert str(run.status_file) in str(status.error) and "retry=true" in str(status.error)


def test_a_key_of_a_later_version_is_ignored(small_run: SmallRun) -> None:
    run = small_run()
    run.status_file.write_text('{"state": "finished", "colour": "red"}')
    assert run.status() == Status(state="finished")


@pytest.mark.slow
def test_other_runs_are_reported(small_run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    intact, damaged = small_run("encoding=rope"), small_run("encoding=alibi")
    assert job([str(intact.path)]) == FINISHED
    folder = [f"outputs_dir={intact.path.parents[1]}", "name=scratch"]
    Status(state="finished", started=1.0).write(damaged.status_file)
    contents = {
        damaged.status_file: "{",
        damaged.evaluation_file: '{"rows": 3}',
        damaged.metrics_file: "{\n",
        damaged.config_file: None,
    }
    for file, text in contents.items():
        before = file.read_bytes() if file.exists() else None
        file.unlink() if text is None else file.write_text(text)
        assert main(["status", *folder]) == 0
        assert main(["report", *folder]) == 0
        output = "".join(capsys.readouterr().out.split())  # lines may be wrapped
        assert file.name in output and damaged.name in output, file.name
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)


def test_planning_goes_on_and_the_job_of_the_damaged_run_fails(
    small_run: SmallRun, small_job: list[str]
) -> None:
    run = small_run("encoding=alibi")
    Status(state="finished", started=1.0).write(run.status_file)
    run.evaluation_file.write_text('{"rows": 3}')
    planned = plan([[*small_job, f"encoding={name}"] for name in ("alibi", "rope")], [], "", print)
    assert [run.run.status().state for run in planned] == ["pending", "pending"]
    assert job([str(run.path)]) == FAILED
    assert "evaluation.json" in str(run.status().error)


def test_planning_writes_a_missing_configuration_again(small_run: SmallRun) -> None:
    run = small_run()
    before = run.config_file.read_text()
    Status(state="finished", started=1.0).write(run.status_file)
    run.config_file.unlink()
    assert run.status().state == "failed" and "config.yaml" in str(run.status().error)
    small_run()
    assert run.config_file.read_text() == before


READERS: dict[str, Callable[[RunDirectory], object]] = {
    "plan.json": lambda run: read_plan(run.path),
    "metrics.jsonl": RunDirectory.metrics,
    "timing.jsonl": RunDirectory.timing,
    "evaluation.json": RunDirectory.rows,
    "ngrams.json": RunDirectory.ngrams,
    "mirror.json": MirrorFile,
    "config.yaml": RunDirectory.config,
    "tokenizer.json": lambda run: load_tokenizer(run.tokenizer_file),
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plan.json", "3"),
        ("plan.json", '{"runs": "all"}'),
        ("plan.json", '{"commands": []}'),
        ("plan.json", "[" * 100_000),
        ("metrics.jsonl", "3\n"),
        ("metrics.jsonl", '{"loss": 1.0}\n'),
        ("timing.jsonl", "[]\n"),
        ("evaluation.json", '{"rows": [{}]}'),
        ("ngrams.json", '{"rows": [{"order": 2, "data": "f", "loss": 1.0}]}'),
        ("mirror.json", "[]"),
        ("mirror.json", '{"entries": [{"row": {}}]}'),
        ("config.yaml", "frozen: {}"),
        ("config.yaml", "3"),
        ("config.yaml", "a: " + "[" * 5000),
        ("config.yaml", "about: &about {title: *about}"),
        ("tokenizer.json", '{"kind": "unknown", "state": {}}'),
        ("tokenizer.json", '{"kind": "subword", "state": {"serialized": {}}}'),
    ],
)
def test_a_file_with_other_contents_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match=name):
        READERS[name](RunDirectory(tmp_path))


def test_keys_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for file in (tmp_path / "plan.json", tmp_path / "mirror.json", run.status_file):
        file.write_text('{"runs": ["a"], "state": "finished", "colour": "red"}')
    assert read_plan(tmp_path)["runs"] == ["a"]
    assert MirrorFile(run).entries == []
    assert Status.read(run.status_file).state == "finished"
