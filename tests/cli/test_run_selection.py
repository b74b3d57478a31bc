"""Runs are selected by a unique prefix of their name, or from an experiment by filters."""

import json
import shutil
from pathlib import Path

import pytest

from posenc.cli import main
from posenc.cli.arguments import parse
from posenc.cli.run_selection import (
    filter_runs,
    select_in_folder,
    select_one_run,
    select_runs,
)
from posenc.config.errors import ConfigError
from posenc.runs.run_directory import RunDirectory, find_run, list_runs
from posenc.runs.status import Status
from posenc.sweeps.plan import plan


@pytest.fixture
def runs(
    small_job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[RunDirectory]:
    """Finished runs: rope with seeds 1 and 2, and alibi with seed 1."""
    monkeypatch.chdir(tmp_path)
    overrides = [word for word in small_job if not word.startswith("outputs_dir=")]
    pairs = [("rope", 1), ("rope", 2), ("alibi", 1)]
    jobs = [[*overrides, f"encoding={name}", f"seed={seed}"] for name, seed in pairs]
    runs = [job.run for job in plan(jobs, [], "posenc train", print)]
    for run in runs:
        Status(state="finished").write(run.status_file)
    return runs


@pytest.mark.parametrize("prefix", ["alibi", "scratch/alibi", "outputs/scratch/alibi-L"])
def test_a_run_is_found_by_a_unique_prefix(runs: list[RunDirectory], prefix: str) -> None:
    assert find_run(prefix).path.resolve() == runs[2].path.resolve()


def test_a_prefix_of_several_runs_is_an_error_that_lists_them(runs: list[RunDirectory]) -> None:
    with pytest.raises(ConfigError) as error:
        find_run("scratch/rope")
    assert all(run.name in str(error.value) for run in runs[:2])
    assert runs[2].name not in str(error.value)
    with pytest.raises(ConfigError, match="no run in outputs has this prefix"):
        find_run("nowhere")


def test_evaluate_selects_finished_runs_of_an_experiment(runs: list[RunDirectory]) -> None:
    Status(state="failed").write(runs[1].status_file)
    words = ["name=scratch", "encoding=rope", "evaluation.lengths=[48]"]
    kept, selected = select_runs(parse("evaluate", words))
    assert kept == "evaluation.lengths=[48]" and selected == f"run=outputs/scratch/{runs[0].name}"
    with pytest.raises(ConfigError, match="the runs have seed=1"):
        select_runs(parse("evaluate", ["name=scratch", "seed=2"]))


@pytest.fixture
def two_experiments(runs: list[RunDirectory]) -> list[RunDirectory]:
    """The runs, in an experiment called `scratch`, and copies of them in one called `other`."""
    shutil.copytree(runs[0].path.parent, runs[0].path.parents[1] / "other")
    return runs


def test_a_prefix_is_searched_in_the_experiment_if_one_is_set(
    two_experiments: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    rope, _, alibi = two_experiments
    with pytest.raises(ConfigError, match="matches 2 runs"):
        find_run("alibi")
    for word in ("alibi", alibi.name, f"outputs/other/{alibi.name}"):
        words = ["name=other", f"run={word}"]
        assert select_runs(parse("evaluate", words)) == [f"run=outputs/other/{alibi.name}"]
        for command in ("report", "status"):
            folder, select = select_in_folder(parse(command, words))
            assert folder == Path("outputs/other") and select is not None
            assert [run.name for run in select(list_runs(folder))] == [alibi.name]
        inspected = select_one_run(parse("inspect", [*words, "windows=2"]))
        assert inspected.overrides == ("windows=2", f"run=outputs/other/{alibi.name}")
    both = [f"run=outputs/other/{alibi.name},outputs/other/{rope.name}"]
    assert select_runs(parse("evaluate", ["name=other", f"run=alibi,{rope.name}"])) == both
    capsys.readouterr()
    for words, message in (
        (["name=other", "run=rope"], "run=rope matches 2 runs (rope-L"),
        (["name=other", "run=t5"], "run=t5: no run in outputs/other has this prefix (its runs: a"),
        (["name=other", "run=alibi", "seed=1"], "run cannot be combined with filters; omit seed"),
        (["name=another", "run=alibi"], "outputs/another does not exist"),
    ):
        for command in ("report", "evaluate", "inspect", "status"):
            assert main([command, *words]) == 2
            assert message in capsys.readouterr().err


def test_inspect_takes_a_run_of_an_experiment(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    selected = select_one_run(parse("inspect", ["name=scratch", "encoding=rope", "seed=2"]))
    assert selected.overrides == (f"run=outputs/scratch/{runs[1].name}",)
    capsys.readouterr()
    assert main(["inspect", "name=scratch", "seed=2", "--cfg"]) == 0
    assert f"run: outputs/scratch/{runs[1].name}" in capsys.readouterr().out
    assert main(["inspect", "name=scratch", "encoding=rope", "seed=2", "--cfg"]) == 0
    assert f"run: outputs/scratch/{runs[1].name}" in capsys.readouterr().out
    assert main(["inspect", "name=scratch", "seed=1"]) == 2
    assert "posenc inspect takes one run, but 2 are selected" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["name=elsewhere", "encoding=rope", "seed=2"],  # this folder has no runs
        ["name=scratch", "encoding=rope", "model.width=64"],  # model.width is not a filter
    ],
)
def test_inspect_analyses_an_untrained_encoding_if_no_run_is_selected(
    runs: list[RunDirectory], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *words, "--cfg"]) == 0
    assert "run: null" in capsys.readouterr().out


def test_a_prefix_is_searched_in_all_experiments_of_a_folder(
    runs: list[RunDirectory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(runs[0].path.parent, moved / "other")
    words = [f"outputs_dir={moved}", "run=alibi"]
    expected = moved / "other" / runs[2].name
    for command in ("evaluate", "inspect"):
        assert select_runs(parse(command, words)) == [f"run='{expected}'"]
    for command in ("report", "status"):
        assert select_in_folder(parse(command, words))[0] == moved / "other"
    with pytest.raises(ConfigError, match=r"run=t5: no run in .*elsewhere has this prefix"):
        select_runs(parse("evaluate", [words[0], "run=t5"]))


def test_an_experiment_without_finished_runs_cannot_be_evaluated(runs: list[RunDirectory]) -> None:
    for run in runs:
        Status(state="failed").write(run.status_file)
    with pytest.raises(ConfigError, match="no finished runs"):
        select_runs(parse("evaluate", ["name=scratch"]))


def test_a_run_with_a_corrupt_configuration_matches_no_filter(runs: list[RunDirectory]) -> None:
    runs[0].config_file.write_text("encoding: [")
    assert [run.name for run in filter_runs(runs, {"seed": {"1"}})] == [runs[2].name]
    assert filter_runs(runs, {}) == runs


def test_status_shows_the_selected_runs(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["status", "name=scratch", "seed=1", "encoding=rope,alibi", "--json"]) == 0
    assert {row["run"] for row in json.loads(capsys.readouterr().out)} == {
        runs[0].name,
        runs[2].name,
    }


def test_status_shows_a_run_by_a_prefix_of_its_name(
    runs: list[RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["status", "run=alibi", "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == [runs[2].name]
    capsys.readouterr()
    assert main(["status", "run=alibi", "seed=1"]) == 2
    assert "run cannot be combined with filters; omit seed" in capsys.readouterr().err
    assert main(["status", "run=alibi,rope"]) == 2


def test_report_reads_the_selected_runs(runs: list[RunDirectory]) -> None:
    for words, expected in (
        (["name=scratch", "encoding=rope"], runs[:2]),
        (["name=scratch", "seed=1"], [runs[0], runs[2]]),
        (["run=alibi"], runs[2:]),
        (["name=scratch", "run=alibi"], runs[2:]),
        (["name=scratch"], None),
    ):
        folder, select = select_in_folder(parse("report", words))
        assert folder.resolve() == runs[0].path.parent.resolve()
        if expected is None:
            assert select is None
        else:
            assert select is not None
            assert [run.name for run in select(runs)] == [run.name for run in expected]
