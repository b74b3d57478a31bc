"""`posenc tune`, with runs that are not trained: their loss is a function of the learning rate."""

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from posenc.api import tuning
from posenc.api.sweep_launch import Sweep
from posenc.cli import main
from posenc.cli import tune as tune_command
from posenc.runs.files import append_jsonl, write_atomic
from posenc.runs.lock import is_locked
from posenc.runs.plan_file import PLAN_LOCK
from posenc.runs.status import Status
from posenc.sweeps.launcher import PlannedRun
from posenc.training.checkpoint import save_checkpoint

pytest.importorskip("optuna")
INTERVAL = "optimizer.learning_rate=tag(log,interval(1e-4,1))"
BEST = {"alibi": 1e-3, "rope": 1e-1}
"""Encoding -> the learning rate with the lowest loss."""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were launched and had no results yet, in order."""
    names: list[str] = []

    def launch(
        sweep: Sweep, planned_runs: Sequence[PlannedRun]
    ) -> tuple[dict[str, Status], dict[str, Status]]:
        for planned in planned_runs:
            run, config = planned.run, planned.run.config()
            if not run.metrics_file.exists():
                names.append(run.name)
                rate = config.optimizer.learning_rate
                loss = abs(math.log(rate / BEST[config.choices.encoding]))
                append_jsonl(run.metrics_file, {"step": 1, "validation_loss": loss})
        statuses = {planned.name: Status(state="finished") for planned in planned_runs}
        return statuses, statuses

    monkeypatch.setattr(tuning, "launch_training", launch)
    return names


@pytest.fixture
def tune(small_job: list[str], tmp_path: Path) -> Callable[..., list[dict[str, str]]]:
    """Runs the command and returns the rows of tuning.csv."""

    def run(*words: str) -> list[dict[str, str]]:
        assert main(["tune", *small_job, "name=search", *words]) == 0
        (file,) = tmp_path.rglob("search/tuning.csv")
        return list(csv.DictReader(file.read_text().splitlines()))

    return run


def test_each_encoding_gets_its_own_learning_rate(
    tune: Callable[..., list[dict[str, str]]],
    launched: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = tune("encoding=alibi,rope", INTERVAL, "trials=2")
    assert len(rows) == len(launched) == 4
    printed = capsys.readouterr().out
    for encoding, rate in BEST.items():
        own = [row for row in rows if row["run"].startswith(encoding)]
        assert len(own) == 2
        nearest = min(own, key=lambda r: abs(math.log(float(r["optimizer.learning_rate"]) / rate)))
        assert [row["run"] in printed for row in own] == [row is nearest for row in own]


def test_the_same_command_retrains_nothing_and_more_trials_continue_the_search(
    tune: Callable[..., list[dict[str, str]]], launched: list[str]
) -> None:
    first = tune("encoding=alibi", INTERVAL, "trials=1")
    assert tune("encoding=alibi", INTERVAL, "trials=1") == first
    assert len(launched) == 1
    assert tune("encoding=alibi", INTERVAL, "trials=2")[:1] == first
    assert len(launched) == 2


def test_another_search_with_the_same_name_keeps_the_trials_of_the_first(
    tune: Callable[..., list[dict[str, str]]], launched: list[str]
) -> None:
    (first,) = tune("encoding=alibi", INTERVAL, "trials=1")
    other = "optimizer.weight_decay=interval(0,1)"
    kept, added = tune("encoding=rope", INTERVAL, other, "trials=1")
    assert kept == {**first, "optimizer.weight_decay": "-"}
    assert added["run"].startswith("rope") and 0 < float(added["optimizer.weight_decay"]) < 1
    assert list(added)[-1] == "validation_loss"


def test_other_searches_cannot_write_between_reading_and_writing_the_file(
    tune: Callable[..., list[dict[str, str]]],
    launched: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locked: list[bool] = []

    def write(file: Path, text: str) -> None:
        locked.append(is_locked(file.with_name(PLAN_LOCK)))
        write_atomic(file, text)

    monkeypatch.setattr(tune_command, "write_atomic", write)
    assert tune("encoding=alibi", INTERVAL, "trials=1")
    assert locked == [True]


def test_losses_of_other_validation_settings_are_not_compared(
    tune: Callable[..., list[dict[str, str]]],
    launched: list[str],
    small_job: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["encoding=alibi", INTERVAL, "trials=1"]
    tune(*command)
    (config_file,) = tmp_path.rglob("search/*/config.yaml")
    save_checkpoint(config_file.parent / "checkpoints", 1, Path.touch)
    assert main(["tune", *small_job, "name=search", *command, "validation.tokens=24"]) == 2
    assert "other validation settings" in capsys.readouterr().err
    assert len(launched) == 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["encoding=alibi"], "interval"),
        ([INTERVAL, "trials=0"], "trials=0"),
        ([INTERVAL, f"trials={'9' * 5000}"], "below 100,000"),
        ([INTERVAL, "validation.every_tokens=null"], "validation.every_tokens"),
        (["optimizer.learning_rate=interval(1,0)"], "optimizer.learning_rate"),
    ],
)
def test_an_invalid_search_is_an_error_and_nothing_is_written(
    small_job: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    part: str,
) -> None:
    assert main(["tune", *small_job, "name=search", *words]) == 2
    assert part in capsys.readouterr().err
    assert not list(tmp_path.rglob("search"))


def test_a_failed_run_is_a_trial_without_a_loss(
    small_job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(
        sweep: Sweep, planned_runs: Sequence[PlannedRun]
    ) -> tuple[dict[str, Status], dict[str, Status]]:
        statuses = {planned.name: Status(state="failed") for planned in planned_runs}
        return statuses, statuses

    monkeypatch.setattr(tuning, "launch_training", fail)
    assert main(["tune", *small_job, "name=search", INTERVAL, "trials=1"]) == 0
    (file,) = tmp_path.rglob("search/tuning.csv")
    (row,) = csv.DictReader(file.read_text().splitlines())
    assert row["validation_loss"] == "-"


def test_an_interrupted_search_says_how_to_resume(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(
        sweep: Sweep, planned_runs: Sequence[PlannedRun]
    ) -> tuple[dict[str, Status], dict[str, Status]]:
        statuses = {planned.name: Status(state="interrupted") for planned in planned_runs}
        return statuses, statuses

    monkeypatch.setattr(tuning, "launch_training", interrupt)
    assert main(["tune", *small_job, "name=search", INTERVAL, "trials=3"]) == 1
    assert "resume" in capsys.readouterr().err
