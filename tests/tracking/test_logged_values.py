"""The ids, history rows, summary and configuration of a W&B run, computed without its client."""

from pathlib import Path

import pytest

from posenc.runs.files import append_jsonl, write_json
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_config import run_id, token_order_digest, variant
from posenc.tracking.wandb_history import extrapolation_row, training_row
from posenc.tracking.wandb_summary import extrapolation_summary, run_summary


def test_the_keys_of_a_training_row_are_grouped_by_prefix():
    row = {"step": 3, "tokens": 768, "loss": 2.5, "learning_rate": 0.1, "validation_loss": 2.75}
    assert training_row(row) == {
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
def test_a_curve_is_named_by_protocol_and_differences_from_the_default(
    config, evaluation_row, changes, curve
):
    assert extrapolation_row(evaluation_row(256, 40.0, **changes), config) == {
        "extrapolation/length": 256,
        f"{curve}/perplexity": 40.0,
        f"{curve}/loss": 0.4,
    }


def test_a_task_has_accuracy_curves(config, evaluation_row):
    row = evaluation_row(64, 2.0, protocol="tasks") | {"accuracy": 0.75, "exact": 0.5}
    history_row = extrapolation_row(row, config)
    assert history_row["extrapolation/tasks/accuracy"] == 0.75
    assert history_row["extrapolation/tasks/exact"] == 0.5


def test_the_summary_has_perplexities_on_the_runs_own_validation_text_only(config, evaluation_row):
    others = [
        evaluation_row(64, 1.0, split="test"),
        evaluation_row(64, 2.0, swap="yarn"),
        evaluation_row(64, 3.0, data="beef"),
        evaluation_row(64, 4.0, protocol="by_position"),
        evaluation_row(2048, 5.0) | {"perplexity": None},  # too large for a float
    ]
    own = [evaluation_row(64, 20.0), evaluation_row(1024, 50.0), evaluation_row(256, 30.0)]
    assert extrapolation_summary([*own, *others], config) == {
        "ppl@L": 20.0,
        "ppl@4L": 30.0,
        "ppl@16L": 50.0,
        "extrapolation_ratio": 2.5,
    }


def test_the_extrapolation_ratio_compares_rows_with_the_same_budget(config, evaluation_row):
    few = {"count": 100, "full_count": 1000, "budget_tokens": 100, "budget_seconds": None}
    rows = [evaluation_row(64, 20.0), evaluation_row(256, 30.0), evaluation_row(1024, 50.0) | few]
    summary = extrapolation_summary(rows, config)
    assert (summary["ppl@16L"], summary["extrapolation_ratio"]) == (50.0, 1.5)


@pytest.mark.parametrize("lengths", [{}, {32: "L-32", 64: "L"}, {128: "2L", 256: "4L"}])
def test_the_extrapolation_ratio_needs_the_training_length_and_a_longer_one(
    config, evaluation_row, lengths
):
    rows = [evaluation_row(length, 10.0) for length in lengths]
    expected = {f"ppl@{label}": 10.0 for label in lengths.values()}
    assert extrapolation_summary(rows, config) == expected


def test_a_variant_is_the_encoding_with_its_parameters(config):
    assert variant(config) == "rope spectrum.base=10000.0"


@pytest.mark.parametrize("key", ["train_length", "seed", "tokens", "batch_tokens"])
def test_the_token_order_digest_depends_on_the_data_settings_only(config, key):
    before = token_order_digest(config)
    config.encoding.spectrum.base = 5e5
    assert token_order_digest(config) == before
    config[key] *= 2
    assert token_order_digest(config) != before


def test_an_id_is_the_folder_and_the_run():
    run = RunDirectory(Path("outputs/rope_base-laptop/rope-L512-s1-3f9c2a1b"))
    assert run_id(run) == "rope_base-laptop.rope-L512-s1-3f9c2a1b"


def test_ids_that_have_to_be_changed_stay_distinct_and_short():
    names = ["a b", "a/b", "a#b", "ä-b", "x" * 90 + "1", "x" * 90 + "2"]
    ids = [run_id(RunDirectory(Path("outputs/e") / name.replace("/", ":"))) for name in names]
    assert len(set(ids)) == len(names)
    for wandb_id in ids:
        assert len(wandb_id) <= 64
        assert not set(wandb_id) & set("/\\#?%: ")
        assert wandb_id.isascii()


def test_the_summary_has_training_costs_and_benchmarks_of_the_same_model(run, config):
    for rate in (100.0, 400.0, 200.0):
        append_jsonl(run.timing_file, {"tokens_per_second": rate, "memory_mb": rate / 10})
    row = {
        "encoding_config": dict(_target_="posenc.encodings.rope.Rope", spectrum={"base": 10000.0}),
        "model_config": {"width": 128},
        "length": 64,
        "precision": "float32",
        "kernel": "auto",
        "pass": "step",
        "tokens_per_second": 5.0,
        "peak_memory_mb": None,
        "utilization": 0.5,
    }
    others = [{"length": 128}, {"encoding_config": {}}, {"model_config": {}}, {"precision": "bf16"}]
    rows = [row, *(row | other | {"tokens_per_second": 9.0} for other in others)]
    write_json(run.path.parent / "bench" / "bench.json", {"rows": rows})
    assert run_summary(run, config) == pytest.approx(
        {
            "cost/training_tokens_per_second": 200.0,
            "cost/training_memory_mb": 40.0,
            "bench/step_tokens_per_second": 5.0,
            "bench/step_utilization": 0.5,
        }
    )
