"""Curves collected from rows and arrays: bins of positions, the longest window, swaps."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from posenc.report.curve_set import describe_lengths
from posenc.report.curves import loss_curves, position_curves
from posenc.report.experiment import read_experiment
from posenc.report.write_report import write_report
from posenc.runs.loss_arrays import bin_positions


@given(st.integers(1, 3000), st.sampled_from([1, 48, 64, 500, 512]))
def test_bins_cover_every_token_once_and_split_at_the_training_length(
    length: int, train_length: int
) -> None:
    counts = np.arange(1, length + 1)
    bins = bin_positions(np.ones(length), counts, train_length)
    assert sum(tokens for _, _, tokens in bins) == counts.sum()
    assert sum(loss * tokens for _, loss, tokens in bins) == pytest.approx(length)
    centers = [position for position, _, _ in bins]
    assert centers == sorted(centers)
    within = sum(tokens for position, _, tokens in bins if position <= train_length)
    assert within == counts[:train_length].sum()


@given(st.integers(1, 3000), st.sampled_from([1, 48, 64, 500, 512]), st.integers(0, 500))
def test_bins_with_few_tokens_are_merged_but_not_across_the_training_length(
    length: int, train_length: int, min_tokens: int
) -> None:
    bins = bin_positions(np.ones(length), np.ones(length, int), train_length, min_tokens)
    assert sum(tokens for _, _, tokens in bins) == length
    ends = np.cumsum([tokens for _, _, tokens in bins]).tolist()
    assert train_length in ends or length < train_length
    too_small = [end for end, bin in zip(ends, bins, strict=True) if bin[2] < min_tokens]
    assert set(too_small) <= {train_length, length}


def test_positions_come_from_the_longest_window(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    rows = [
        fabricate.row(2, 9.0, protocol="by_position", count=4000),
        fabricate.row(4, 20 / 7, protocol="by_position", count=14_000),
    ]
    positions = {
        "f00dfeed0123.validation.2.sum": 2000 * np.array([9.0, 9.0]),
        "f00dfeed0123.validation.2.count": 2000 * np.array([1, 1]),
        "f00dfeed0123.validation.4.sum": 2000 * np.array([8.0, 6.0, 4.0, 2.0]),
        "f00dfeed0123.validation.4.count": 2000 * np.array([2, 2, 2, 1]),
    }
    config = fabricate.config("alibi", 2, 1)
    fabricate.run(tmp_path / "short", config, rows, positions=positions)
    report = write_report(tmp_path / "short", console).parent
    text = (report / "loss_by_position.csv").read_text()
    points = [(float(r["position"]), float(r["loss"])) for r in csv.DictReader(io.StringIO(text))]
    assert points == [(1, 4.0), (2, 3.0), (3, 2.0), (4, 2.0)]


def test_each_swap_has_the_positions_of_its_own_arrays(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    """One swap has a dot in its name, and the swaps were evaluated at different lengths."""
    losses = {(None, 4): 3.0, (None, 2): 1.0, ("yarn factor=2.5", 4): 5.0, ("pi", 2): 7.0}
    rows, positions = [], {}
    for (swap, length), loss in losses.items():
        keys = {"protocol": "by_position", "swap": swap, "count": 10 * length}
        rows.append(fabricate.row(length, loss, **keys))
        name = f"f00dfeed0123.validation.{length}{'' if swap is None else f'.{swap}'}"
        positions |= {f"{name}.sum": np.full(length, 10 * loss), f"{name}.count": [10] * length}
    fabricate.run(tmp_path / "swaps", fabricate.config("rope", 2, 1), rows, positions=positions)
    means = {
        (curve.label, curves.window): {p.mean for p in curve.points}
        for curves in position_curves(read_experiment(tmp_path / "swaps"))
        for curve in curves.curves
    }
    assert means == {("none", 4): {3.0}, ("yarn factor=2.5", 4): {5.0}, ("pi", 2): {7.0}}


def test_lengths_are_labeled_in_terms_of_the_training_length() -> None:
    labels = [describe_lengths([length], 64)[0] for length in (32, 64, 65, 128, 150, 1024)]
    assert labels == ["L-32", "L", "L+1", "2L", "L+86", "16L"]


def test_positions_evaluated_with_a_larger_budget_are_left_out(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    """Both runs have a row with a small budget; the arrays of rope belong to its complete row."""
    name = "f00dfeed0123.validation.4"
    small = {"protocol": "by_position", "count": 8, "full_count": 80, "budget_tokens": 8}
    large = {"protocol": "by_position", "count": 80, "full_count": 80, "budget_tokens": None}
    for encoding, budgets in {"alibi": [small], "rope": [small, large]}.items():
        rows = [fabricate.row(4, 2.0, **budget) for budget in budgets]
        tokens_per_position = 20 if large in budgets else 2
        counts = np.full(4, tokens_per_position)
        positions = {f"{name}.sum": 2.0 * counts, f"{name}.count": counts}
        config = fabricate.config(encoding, 2, 1)
        fabricate.run(tmp_path / "budgets", config, rows, positions=positions)
    (curves,) = position_curves(read_experiment(tmp_path / "budgets"))
    assert [curve.label for curve in curves.curves] == ["alibi"]


def test_the_main_evaluation_is_on_the_split_for_which_the_runs_were_planned(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    for encoding in ("alibi", "rope"):
        rows = [fabricate.row(64, 3.0)]
        if encoding == "rope":
            rows += [fabricate.row(64, 2.0, split=split) for split in ("test", "train")]
        config = fabricate.config(encoding, 64, 1, evaluation={"split": "validation"})
        fabricate.run(tmp_path / "splits", config, rows)
    sets = loss_curves(read_experiment(tmp_path / "splits"))
    assert [curves.evaluation_key.split for curves in sets] == ["validation", "test", "train"]
