"""What is sent to a dashboard, without the dashboard."""

from pathlib import Path

import pytest

from posenc.runs.files import append_line, write_json
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.identity import run_id, token_stream, variant
from posenc.tracking.points import curve_point, training_point
from posenc.tracking.summary import curve_summary, run_summary, span


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
        "ppl@L": 20.0,
        "ppl@4L": 30.0,
        "ppl@16L": 50.0,
        "extrapolation_ratio": 2.5,
    }


@pytest.mark.parametrize("lengths", [[], [32, 64], [128, 256]])
def test_there_is_no_ratio_without_both_ends(config, measured, lengths):
    summary = curve_summary([measured(length, 10.0) for length in lengths], config)
    assert summary == {f"ppl@{span(length, 64)}": 10.0 for length in lengths}


def test_lengths_are_told_by_the_training_length():
    assert [span(at, 64) for at in (32, 64, 65, 128, 150, 1024)] == [
        "L-32",
        "L",
        "L+1",
        "2L",
        "L+86",
        "16L",
    ]


def test_a_variant_is_the_encoding_with_its_knobs(config):
    assert variant(config) == "rope spectrum.base=10000.0"


@pytest.mark.parametrize("key", ["train_length", "seed", "tokens", "batch_tokens"])
def test_what_decides_the_training_tokens_is_in_their_hash(config, key):
    before = token_stream(config)
    config.encoding.spectrum.base = 5e5
    assert token_stream(config) == before
    config[key] *= 2
    assert token_stream(config) != before


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


def test_the_summary_has_what_training_cost_and_the_bench_row(run, config):
    for rate in (100.0, 400.0, 200.0):
        append_line(run.timing_file, {"tokens_per_second": rate, "memory_mb": rate / 10})
    row = {
        "encoding_config": dict(_target_="posenc.encodings.rope.Rope", spectrum={"base": 10000.0}),
        "model_config": {"width": 128},
        "length": 64,
        "precision": "float32",
        "kernel": "auto",
        "pass": "step",
        "tokens_per_second": 5.0,
        "peak_memory_mb": None,
        "utilisation": 0.5,
    }
    others = [{"length": 128}, {"encoding_config": {}}, {"model_config": {}}, {"precision": "bf16"}]
    rows = [row, *(row | other | {"tokens_per_second": 9.0} for other in others)]
    write_json(run.path.parent / "bench" / "bench.json", {"rows": rows})
    assert run_summary(run, config) == pytest.approx(
        {
            "cost/training_tokens_per_second": 200.0,
            "cost/training_memory_mb": 40.0,
            "bench/step_tokens_per_second": 5.0,
            "bench/step_utilisation": 0.5,
        }
    )
