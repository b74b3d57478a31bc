"""`posenc clean` removes the selected runs, and nothing else."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from posenc.cli import main
from posenc.config.errors import RunError
from posenc.runs import delete_run
from posenc.runs.files import read_json
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.plan import plan as plan_runs


@pytest.fixture
def runs(small_job: list[str]) -> list[RunDirectory]:
    """A failed, an interrupted and a finished run; the first two have offline W&B files."""
    runs = [
        job.run
        for job in plan_runs(
            [[*small_job, f"seed={n}"] for n in (1, 2, 3)], [], "posenc train", print
        )
    ]
    for run, state in zip(runs, ("failed", "interrupted", "finished"), strict=True):
        Status(state=state).write(run.status_file)  # type: ignore[arg-type]
    for run in runs[:2]:
        offline_run = run.path.parent / "wandb" / f"offline-run-20260101_000000-scratch.{run.name}"
        offline_run.mkdir(parents=True)
        (offline_run / "run.wandb").write_bytes(b"0" * 1000)
        (offline_run.parent / f"run-{run.name}").mkdir()
        (offline_run.parent / f"scratch.{run.name}.next_step").write_text("41\n")
    return runs


def test_a_run_can_be_removed_from_within_its_directory(
    runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs[0].path)
    assert main(["clean", "run=.", "--yes"]) == 0
    assert not runs[0].path.exists() and runs[1].path.exists()


def files_in_outputs(run: RunDirectory) -> set[Path]:
    return set(run.path.parents[1].rglob("*"))


def test_without_yes_nothing_is_removed(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in_outputs(runs[0])
    assert main(["clean", f"run={runs[0].path}"]) == 0
    printed = capsys.readouterr().out
    assert str(runs[0].path) in printed and "dry run" in printed
    assert files_in_outputs(runs[0]) == before


def test_runs_in_the_given_states_are_removed_with_all_their_files(
    runs: list[RunDirectory],
) -> None:
    failed, interrupted, finished = runs
    folder = failed.path.parent
    kept = {path for path in files_in_outputs(failed) if failed.name not in str(path)}
    words = [f"outputs_dir={folder.parent}", "name=scratch", "state=failed,pending", "--yes"]
    assert main(["clean", *words]) == 0
    assert files_in_outputs(interrupted) == kept
    plan = read_json(folder / "plan.json")
    assert plan["runs"] == list(plan["commands"]) == [interrupted.name, finished.name]


def test_files_of_other_runs_are_kept_whatever_a_run_calls_itself(
    runs: list[RunDirectory],
) -> None:
    failed = runs[0]
    forged = failed.path.rename(failed.path.with_name("*"))
    text = (forged / "config.yaml").read_text().replace(f"run: {failed.name}", "run: '*'")
    (forged / "config.yaml").write_text(text)
    kept = {path for path in files_in_outputs(failed) if forged not in (path, *path.parents)}
    assert main(["clean", f"run={forged}", "--yes"]) == 0
    assert kept <= files_in_outputs(failed)


def test_nothing_is_removed_through_a_symbolic_link(
    runs: list[RunDirectory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs[0].path.parent
    elsewhere = (folder / "wandb").rename(tmp_path / "elsewhere")
    (folder / "wandb").symlink_to(elsewhere)
    before = set(elsewhere.rglob("*"))
    assert main(["clean", f"run={runs[0].path}", "--yes"]) in (1, 2)
    assert "symbolic link" in capsys.readouterr().err
    assert set(elsewhere.rglob("*")) == before and runs[0].config_file.exists()


def test_a_symbolic_link_to_a_wandb_folder_is_removed_without_the_folder(
    runs: list[RunDirectory], tmp_path: Path
) -> None:
    folder = runs[0].path.parent / "wandb" / f"run-{runs[0].name}"
    elsewhere = folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(elsewhere)
    assert main(["clean", f"run={runs[0].path}", "--yes"]) == 0
    assert elsewhere.is_dir() and not folder.is_symlink() and not runs[0].path.exists()


def test_an_experiments_folder_is_removed_with_its_last_run(runs: list[RunDirectory]) -> None:
    folder = runs[0].path.parent
    words = ["clean", f"run={','.join(str(run.path) for run in runs[:2])}", "--yes"]
    assert main(words) == 0 and folder.is_dir()
    assert main(["clean", f"run={runs[2].path}", "--yes"]) == 0
    assert not folder.exists() and folder.parent.is_dir()


def test_the_plan_is_kept_while_the_folder_has_a_run_that_is_not_in_it(
    runs: list[RunDirectory],
) -> None:
    folder = runs[0].path.parent
    before = read_json(folder / "plan.json")
    copied = shutil.copytree(runs[2].path, folder / "nope-L24-s9-00000000")
    assert main(["clean", f"run={','.join(str(run.path) for run in runs)}", "--yes"]) == 0
    assert copied.is_dir()
    assert read_json(folder / "plan.json") == {**before, "runs": [], "commands": {}}


def test_a_run_is_removed_although_another_clean_deletes_its_temporary_folder(
    runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []

    def delete_once(**kwargs: Any) -> str:
        path = mkdtemp(**kwargs)
        if not deleted:
            Path(path).rmdir()
            deleted.append(path)
        return path

    monkeypatch.setattr(delete_run, "mkdtemp", delete_once)
    assert main(["clean", f"run={runs[0].path}", "--yes"]) == 0
    assert deleted and not runs[0].path.exists() and runs[1].path.exists()


def test_processes_that_delete_the_runs_of_an_experiment_together_all_succeed(
    runs: list[RunDirectory],
) -> None:
    """The last one deletes the folder, with the lock for which the others may be waiting."""
    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(delete_run.remove_run, runs))
    assert not runs[0].path.parent.exists()


def test_a_folder_that_another_process_has_deleted_is_no_error(
    runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_first(folder: Path) -> None:
        shutil.rmtree(folder)
        raise RunError(f"{folder} has been deleted; rerun the command")

    monkeypatch.setattr(delete_run, "_remove_emptied_folder", remove_first)
    assert main(["clean", f"run={runs[0].path}", "--yes"]) == 0


def test_the_report_is_kept_when_the_last_run_is_removed(runs: list[RunDirectory]) -> None:
    report = runs[0].path.parent / "report" / "index.html"
    report.parent.mkdir()
    report.write_text("results")
    assert main(["clean", f"run={','.join(str(run.path) for run in runs)}", "--yes"]) == 0
    assert report.read_text() == "results"
    left = {path.name for path in report.parents[1].iterdir() if path.name[0] != "."}
    assert left <= {"report", "wandb"}


def test_the_other_runs_are_removed_if_one_has_a_corrupt_configuration(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    runs[0].config_file.write_text("name: [")
    folder = f"outputs_dir={runs[0].path.parents[1]}"
    words = ["clean", folder, "name=scratch", "state=failed,interrupted"]
    assert main(words) == 1 and main([*words, "--yes"]) == 1
    printed = capsys.readouterr().out
    assert f"{runs[0].name}  skipped" in printed and "delete the folder yourself" in printed
    assert runs[0].path.exists() and not runs[1].path.exists() and runs[2].path.exists()


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_results_whose_status_is_lost_are_kept_unless_the_run_is_named(
    runs: list[RunDirectory], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = runs[2]
    finished.metrics_file.write_text("{}\n")
    finished.status_file.write_text('{"state": "fini')
    if damage == "missing":
        finished.status_file.unlink()
    states = "state=pending,failed,interrupted"
    words = [f"outputs_dir={finished.path.parents[1]}", "name=scratch", states, "--yes"]
    assert main(["clean", *words]) == 1
    assert f"run={finished.path}" in capsys.readouterr().out
    assert finished.path.exists() and not runs[0].path.exists()
    assert main(["clean", f"run={finished.path}", "--yes"]) == 0
    assert not finished.path.exists()


def test_a_symbolic_link_among_the_leftovers_of_a_killed_clean_is_removed(
    runs: list[RunDirectory], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (runs[0].path.parent / ".deleted-x").symlink_to(elsewhere)
    assert main(["clean", f"run={runs[0].path}", "--yes"]) == 0
    assert elsewhere.is_dir() and not list(runs[0].path.parent.glob(".deleted-*"))


def test_a_running_run_is_not_removed(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in_outputs(runs[0])
    with lock(runs[0].lock_file, timeout=0):
        assert main(["clean", f"run={runs[0].path}", "--yes"]) == 1
    assert "is being run by another" in capsys.readouterr().err
    assert files_in_outputs(runs[0]) - before <= {runs[0].lock_file}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "run=PATH"),
        (["name=scratch"], "run=PATH"),
        (["state=failed"], "run=PATH"),
        (["name=scratch", "state=running"], "state=running"),
        (["run=nowhere"], "no config.yaml"),
        (["run=other"], "not the configuration of a planned run"),
        (["run=moved"], "is not named after the run"),
    ],
)
def test_an_invalid_selection_removes_nothing(
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
