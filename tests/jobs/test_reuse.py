"""A sweep copies the finished runs of other experiments instead of training them again."""

import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.grids import compose_sweep
from posenc.config.paths import options
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.saved_config import write_config
from posenc.runs.status import Status
from posenc.sweeps.plan import plan
from posenc.sweeps.reuse import copy_run, reused_experiments
from posenc.training.checkpoint import list_checkpoints


def planned(small_job: list[str], *overrides: str, reuse: tuple[str, ...] = ()) -> RunDirectory:
    return plan([[*small_job, *overrides]], [], "test", print, reuse=reuse)[0].run


def finish(run: RunDirectory) -> None:
    assert main([str(run.path), "--threads", "1"]) == FINISHED, run.status().error


def contents(run: RunDirectory) -> dict[str, bytes]:
    files = [file for file in run.path.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


def test_a_copied_run_is_evaluated_at_new_lengths_without_training(small_job: list[str]) -> None:
    at_train_length = [o.replace("[1,4]", "[1]") for o in small_job]
    first = planned(at_train_length, "name=first")
    finish(first)
    before = contents(first)
    second = planned(small_job, "name=second", reuse=("first",))
    assert second.status().state == "pending" and second.config().name == "second"
    finish(second)
    assert second.name == first.name and contents(first) == before
    assert second.metrics() == first.metrics()
    checkpoints = [list_checkpoints(run.checkpoints)[-1].path for run in (first, second)]
    assert checkpoints[0].read_bytes() == checkpoints[1].read_bytes()
    assert {row["length"] for row in second.rows()} == {24, 96}
    assert [row for row in second.rows() if row["length"] == 24] == first.rows()


def test_a_copied_run_with_all_requested_results_is_finished(small_job: list[str]) -> None:
    finish(planned(small_job, "name=first"))
    second = planned(small_job, "name=second", reuse=("other", "first"))
    assert second.status().state == "finished"


def test_a_run_without_checkpoints_is_copied_if_it_has_all_requested_results(
    small_job: list[str],
) -> None:
    first = planned(small_job, "name=first")
    finish(first)
    shutil.rmtree(first.checkpoints)
    values = first.config_dict()
    values["planned"]["posenc_version"] = "0.2.0.dev1"
    write_config(first.config_file, values)
    second = planned(small_job, "name=second", reuse=("first",))
    assert second.status().state == "finished" and second.rows() == first.rows()
    assert second.config().name == "second"
    assert second.config().planned.posenc_version == "0.2.0.dev1"
    more_lengths = [o.replace("[1,4]", "[1,2,4]") for o in small_job]
    third = planned(more_lengths, "name=third", reuse=("first",))
    assert third.status() == Status()
    first.config_file.write_text("[")
    fourth = planned(small_job, "name=fourth", reuse=("first",))
    assert fourth.status() == Status()


@pytest.mark.parametrize("state", ["pending", "interrupted", "failed"])
def test_an_unfinished_run_is_not_copied(small_job: list[str], state: str) -> None:
    first = planned(small_job, "name=first")
    Status(state=state).write(first.status_file)  # type: ignore[arg-type]
    second = planned(small_job, "name=second", reuse=("first",))
    assert second.status() == Status()


def test_a_run_that_was_planned_but_not_started_is_copied(small_job: list[str]) -> None:
    second = planned(small_job, "name=second")
    first = planned(small_job, "name=first")
    finish(first)
    planned(small_job, "name=second", reuse=("first",))
    assert second.status().state == "finished" and second.rows() == first.rows()
    assert not list(second.path.parent.glob(".copy-*"))


def test_a_run_that_has_been_started_is_kept(small_job: list[str]) -> None:
    second = planned(small_job, "name=second")
    first = planned(small_job, "name=first")
    finish(first)
    started = Status(state="interrupted", started=1.0)
    started.write(second.status_file)
    planned(small_job, "name=second", reuse=("first",))
    assert second.status() == started


@pytest.mark.slow
def test_a_trained_run_that_lost_its_status_is_kept(small_job: list[str]) -> None:
    finish(planned(small_job, "name=first"))
    second = planned(small_job, "name=second")
    finish(second)
    second.status_file.unlink()
    (second.path / "notes.txt").touch()
    planned(small_job, "name=second", reuse=("first",))
    assert (second.path / "notes.txt").exists()


def test_a_run_that_another_process_has_just_started_is_kept(small_job: list[str]) -> None:
    second = planned(small_job, "name=second")
    first = planned(small_job, "name=first")
    finish(first)
    before = contents(second)
    with lock(second.lock_file, timeout=0) as acquired:
        assert acquired
        planned(small_job, "name=second", reuse=("first",))
        copy_run(first, second)
    assert {k: v for k, v in contents(second).items() if "lock" not in k} == before


def test_a_run_of_another_configuration_is_an_error_and_nothing_is_written(
    small_job: list[str], tmp_path: Path
) -> None:
    first = planned(small_job, "name=first")
    finish(first)
    config = first.config()
    config.gradient_clip = 2.0
    OmegaConf.save(config, first.config_file)
    with pytest.raises(ConfigError, match=str(first.path)):
        planned(small_job, "name=second", reuse=("first",))
    assert not (tmp_path / "outputs" / "second").exists()


@pytest.mark.parametrize("name", sorted(options("experiment")))
def test_every_experiment_reuses_experiments_of_its_own_size(name: str) -> None:
    sweep = compose_sweep("train", [f"experiment={name}", "size=laptop"], [])
    reused = reused_experiments(sweep)
    assert all(folder.removesuffix("-laptop") in options("experiment") for folder in reused)
    assert all(folder.endswith("-laptop") for folder in reused)


@pytest.mark.parametrize("value", ["a", "[1]", "[../elsewhere]", "['${missing}']", "${missing}"])
def test_a_value_that_names_no_experiments_is_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match="reuse"):
        reused_experiments(compose_sweep("train", [f"reuse={value}"], []))


def test_the_leftovers_of_a_killed_copy_are_removed(small_job: list[str], tmp_path: Path) -> None:
    first = planned(small_job, "name=first")
    finish(first)
    unfinished = tmp_path / "outputs" / "second" / ".copy-killed"
    unfinished.mkdir(parents=True)
    (unfinished / "status.json").write_text('{"sta')
    second = planned(small_job, "name=second", reuse=("first",))
    assert second.rows() == first.rows()
    assert not unfinished.exists()


def test_a_run_that_another_process_has_copied_is_kept(small_job: list[str]) -> None:
    first = planned(small_job, "name=first")
    finish(first)
    second = planned(small_job, "name=second", reuse=("first",))
    before = contents(second)
    copy_run(first, second)
    assert contents(second) == before
