"""What is sent to a dashboard, without the dashboard."""

from pathlib import Path

import pytest

from posenc.record.rundir import RunDirectory
from posenc.tracking.points import curve_point, curve_summary, run_id, training_point


def test_a_training_row_keeps_its_numbers_under_grouped_names():
    row = {"step": 3, "tokens": 768, "loss": 2.5, "learning_rate": 0.1, "validation_loss": 2.75}
    assert training_point(row) == {
        "step": 3,
        "tokens": 768,
        "train/loss": 2.5,
        "train/learning_rate": 0.1,
        "validation/loss": 2.75,
    }


@pytest.mark.parametrize(
    ("changes", "curve"),
    [
        ({}, "extrapolation/nonoverlapping"),
        ({"protocol": "by_position"}, "extrapolation/by_position"),
        ({"split": "test"}, "extrapolation/test/nonoverlapping"),
        ({"swap": "yarn"}, "extrapolation/yarn/nonoverlapping"),
        ({"swap": "yarn factor=4 slow=2"}, "extrapolation/yarn-factor=4-slow=2/nonoverlapping"),
        ({"protocol": "sliding", "stride": 1}, "extrapolation/sliding-1"),
        ({"protocol": "sliding", "stride": 64}, "extrapolation/sliding-64"),
        ({"data": "beef", "data_name": "books"}, "extrapolation/books/nonoverlapping"),
        (
            {"data": "beef", "data_name": "books", "split": "test", "swap": "pi"},
            "extrapolation/books/test/pi/nonoverlapping",
        ),
    ],
)
def test_a_curve_is_named_by_what_sets_it_apart(config, measured, changes, curve):
    assert curve_point(measured(256, 40.0, **changes), config) == {
        "extrapolation/length": 256,
        f"{curve}/perplexity": 40.0,
        f"{curve}/loss": 0.4,
    }


def test_a_task_has_curves_of_its_answers(config, measured):
    row = measured(64, 2.0, protocol="tasks") | {"accuracy": 0.75, "exact": 0.5}
    point = curve_point(row, config)
    assert point["extrapolation/tasks/accuracy"] == 0.75
    assert point["extrapolation/tasks/exact"] == 0.5


def test_the_summary_holds_the_runs_own_curve_only(config, measured):
    others = [
        measured(64, 1.0, split="test"),
        measured(64, 2.0, swap="yarn"),
        measured(64, 3.0, data="beef"),
        measured(64, 4.0, protocol="by_position"),
    ]
    rows = [measured(64, 20.0), measured(1024, 50.0), measured(256, 30.0), *others]
    assert curve_summary(rows, config) == {
        "perplexity@64": 20.0,
        "perplexity@256": 30.0,
        "perplexity@1024": 50.0,
        "extrapolation_ratio": 2.5,
    }


@pytest.mark.parametrize("lengths", [[], [32, 64], [128, 256]])
def test_there_is_no_ratio_without_both_ends(config, measured, lengths):
    summary = curve_summary([measured(length, 10.0) for length in lengths], config)
    assert summary == {f"perplexity@{length}": 10.0 for length in lengths}


def test_an_id_is_the_folder_and_the_run():
    run = RunDirectory(Path("outputs/rope_base-laptop/rope-L512-s1-3f9c2a1b"))
    assert run_id(run) == "rope_base-laptop.rope-L512-s1-3f9c2a1b"


def test_ids_that_do_not_fit_stay_apart_and_short():
    names = ["a b", "a/b", "a#b", "ä-b", "x" * 90 + "1", "x" * 90 + "2"]
    ids = [run_id(RunDirectory(Path("outputs/e") / name.replace("/", ":"))) for name in names]
    assert len(set(ids)) == len(names)
    for identity in ids:
        assert len(identity) <= 64
        assert not set(identity) & set("/\\#?%: ")
        assert identity.isascii()
