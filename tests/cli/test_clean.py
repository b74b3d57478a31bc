"""`posenc clean` removes what is named, and nothing else."""

from pathlib import Path

import pytest

from posenc.cli import main
from posenc.runs.files import read_json
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.plan import plan


@pytest.fixture
def runs(small_job: list[str]) -> list[RunDirectory]:
    """A failed, an interrupted and a finished run, the first with fragments of W&B."""
    made = [
        job.run
        for job in plan([[*small_job, f"seed={n}"] for n in (1, 2, 3)], [], "posenc train", print)
    ]
    for run, state in zip(made, ("failed", "interrupted", "finished"), strict=True):
        Status(state=state).write(run.status_file)  # type: ignore[arg-type]
    for run in made[:2]:
        fragment = run.path.parent / "wandb" / f"offline-run-20260101_000000-scratch.{run.name}"
        fragment.mkdir(parents=True)
        (fragment / "run.wandb").write_bytes(b"0" * 1000)
        (fragment.parent / f"scratch.{run.name}.next_step").write_text("41\n")
    return made


def files(run: RunDirectory) -> set[Path]:
    return set(run.path.parents[1].rglob("*"))


def test_nothing_is_removed_before_yes(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(runs[0])
    assert main(["clean", f"run={runs[0].path}"]) == 0
    printed = capsys.readouterr().out
    assert str(runs[0].path) in printed and "dry run" in printed
    assert files(runs[0]) == before


def test_runs_of_a_state_go_with_all_that_is_theirs(runs: list[RunDirectory]) -> None:
    failed, interrupted, finished = runs
    folder = failed.path.parent
    kept = {path for path in files(failed) if failed.name not in str(path)}
    words = [f"outputs_dir={folder.parent}", "name=scratch", "state=failed,pending", "--yes"]
    assert main(["clean", *words]) == 0
    assert files(interrupted) == kept
    told = read_json(folder / "plan.json")
    assert told["runs"] == list(told["commands"]) == [interrupted.name, finished.name]


def test_a_run_at_work_is_left_alone(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(runs[0])
    with lock(runs[0].lock_file, wait=False):
        assert main(["clean", f"run={runs[0].path}", "--yes"]) == 1
    assert "is being run by another process" in capsys.readouterr().err
    assert files(runs[0]) - before <= {runs[0].lock_file}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "say what to remove"),
        (["name=scratch"], "say what to remove"),
        (["state=failed"], "say what to remove"),
        (["name=scratch", "state=running"], "state=running"),
        (["run=nowhere"], "no config.yaml"),
        (["run=other"], "not the configuration of a planned run"),
        (["run=moved"], "is not the directory of the run"),
    ],
)
def test_what_is_not_named_or_no_run_stays(
    runs: list[RunDirectory],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("other", "seed: 1\n"), ("moved", runs[0].config_file.read_text())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(text)
    before = set(tmp_path.rglob("*"))
    assert main(["clean", *words, "--yes"]) in (1, 2)
    assert part in capsys.readouterr().err
    assert set(tmp_path.rglob("*")) == before
