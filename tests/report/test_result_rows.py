"""Which values are distinguishable from the best of their column, and intervals in the tables."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import t

from posenc.report.curve_set import (
    ACCURACY,
    PERPLEXITY,
    Curve,
    CurveSet,
    DisplayedQuantity,
    EvaluationKey,
    Point,
)
from posenc.report.result_rows import paired_difference, result_rows
from posenc.report.write_report import write_report
from posenc.runs.loss_arrays import BlockSums

BLOCKS, TOKENS = 20, 4096
NOISE = np.random.default_rng(0).normal(0, 0.1, BLOCKS)
LOSSES = np.linspace(2, 5, BLOCKS)  # by block; blocks differ more than encodings


def point(losses: Sequence[np.ndarray], *, tokens: int = TOKENS, saved: bool = True) -> Point:
    """Return a point from the losses [blocks] of each seed; `saved` is whether it has blocks."""
    counts = np.full(BLOCKS, tokens)
    blocks = tuple(BlockSums(loss * counts, counts) if saved else None for loss in losses)
    values = tuple(float(loss.mean()) for loss in losses)
    seeds = tuple(range(1, len(losses) + 1))
    return Point(64, values, seeds, BLOCKS * tokens, blocks, (None,) * len(losses))


def marked_labels(points: dict[str, Point], quantity: DisplayedQuantity = PERPLEXITY) -> set[str]:
    key = EvaluationKey("f", "text", "validation", "nonoverlapping", None, None)
    curves = tuple(Curve(label, label, (value,)) for label, value in points.items())
    rows = result_rows(CurveSet(key, 64, curves, quantity=quantity))
    return {row.curve.label for row in rows if row.values[64].best}


@pytest.mark.parametrize("seeds", [1, 3])
def test_values_that_differ_by_chance_alone_are_marked_with_the_best(seeds: int) -> None:
    """Every block is 0.02 worse with `worse`; `even` is better in some blocks, worse in others."""
    even = LOSSES + NOISE - NOISE.mean() + 0.001
    points = {
        "best": point([LOSSES] * seeds),
        "worse": point([LOSSES + 0.02] * seeds),
        "even": point([even] * seeds),
    }
    assert marked_labels(points) == {"best", "even"}


def test_without_blocks_values_are_compared_across_seeds() -> None:
    seeds = np.array([0.0, 0.1, 0.2])
    points = {
        "best": point([LOSSES + s for s in seeds], saved=False),
        "worse": point([LOSSES + s + 0.01 for s in seeds], saved=False),
        "noisy": point([LOSSES + s for s in (0.2, 0.0, 0.11)], saved=False),
    }
    assert marked_labels(points) == {"best", "noisy"}


def test_with_one_seed_and_no_blocks_only_the_best_is_marked() -> None:
    points = {"a": point([LOSSES], saved=False), "b": point([LOSSES + 1e-6], saved=False)}
    assert marked_labels(points) == {"a"}


def test_the_highest_accuracy_is_the_best() -> None:
    points = {"a": point([LOSSES], saved=False), "b": point([LOSSES + 1], saved=False)}
    assert marked_labels(points, ACCURACY) == {"b"}


def test_only_seeds_that_both_have_are_compared() -> None:
    left, right = point([LOSSES, LOSSES + 1]), point([LOSSES + 0.5])
    difference = paired_difference(left, right)
    assert difference is not None and difference.mean == pytest.approx(-0.5)


def test_losses_of_different_tokens_are_not_paired_by_block() -> None:
    left, right = point([LOSSES]), point([LOSSES], tokens=100)
    assert paired_difference(left, right) is None


def write_runs(folder: Path, fabricate: SimpleNamespace) -> Path:
    """Write runs of two encodings with three seeds, evaluated at two lengths by two protocols."""
    for offset, encoding in ((0.0, "alibi"), (0.3, "rope")):
        for seed in (1, 2, 3):
            config, rows, arrays = fabricate.config(encoding, 64, seed), [], {}
            for protocol, stride in (("nonoverlapping", None), ("fixed_target", 32)):
                for length in (64, 128):
                    counts = np.full(BLOCKS, TOKENS)
                    shift = offset + 0.01 * seed**2 + 0.1 * (protocol == "fixed_target")
                    sums = (LOSSES + shift) * counts
                    key = {"protocol": protocol, "stride": stride, "count": int(counts.sum())}
                    rows.append(fabricate.row(length, sums.sum() / counts.sum(), **key))
                    name = f"{rows[-1]['data']}.validation.{protocol}.{length}.{stride or '-'}.-"
                    arrays |= {f"{name}.sum": sums, f"{name}.count": counts}
            path = fabricate.run(folder, config, rows)
            np.savez(path / "loss_by_block.npz", allow_pickle=False, **arrays)
    return folder


def test_intervals_are_in_the_table_and_in_the_csv(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    folder = write_runs(tmp_path / "intervals", fabricate)
    report = write_report(folder, console).parent
    losses = [3.5 + 0.01 * seed**2 for seed in (1, 2, 3)]
    mean, half = np.mean(losses), t.ppf(0.975, 2) * np.std(losses, ddof=1) / math.sqrt(3)
    low, high = math.exp(mean - half), math.exp(mean + half)
    text = f"{math.exp(mean):.2f} ±{(high - low) / 2:.2f}"
    assert f"| alibi | 3 | **{text}** | **{text}** |" in (report / "extrapolation.md").read_text()
    lines = csv.DictReader(io.StringIO((report / "extrapolation.csv").read_text()))
    rows = {(row["protocol"], row["encoding"]): row for row in lines}
    row = rows["nonoverlapping", "alibi"]
    assert [float(row[f"64_{end}"]) for end in ("low", "high")] == pytest.approx([low, high], 1e-5)
    # blocks vary more than seeds; the standard error over blocks is LOSSES.std() / sqrt(20)
    error = 1.96 * LOSSES.std() / math.sqrt(BLOCKS)
    assert math.log(float(row["64_text_low"])) == pytest.approx(mean - error, abs=0.2 * error)
    assert math.log(float(row["64_text_high"])) == pytest.approx(mean + error, abs=0.2 * error)
    assert (row["64_best"], rows["nonoverlapping", "rope"]["64_best"]) == ("true", "false")


def test_fixed_targets_are_listed_below_the_main_row_of_their_encoding(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    folder = write_runs(tmp_path / "fixed", fabricate)
    markdown = (write_report(folder, console).parent / "extrapolation.md").read_text()
    labels = [line.split(" | ")[0] for line in markdown.splitlines() if line.startswith("| ")]
    assert labels == [
        "| encoding",
        "| ---",
        "| alibi",
        "| alibi, fixed targets",
        "| rope",
        "| rope, fixed targets",
    ]
    assert markdown.count("\n| alibi, fixed targets | 3 | **") == 1


def test_fixed_targets_at_other_lengths_have_a_table_of_their_own(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    fixed = {"protocol": "fixed_target", "stride": 32}
    rows = [fabricate.row(64, 3.0), fabricate.row(128, 3.0, **fixed)]
    fabricate.run(tmp_path / "own", fabricate.config("alibi", 64, 1), rows)
    markdown = (write_report(tmp_path / "own", console).parent / "extrapolation.md").read_text()
    assert markdown.count("| encoding |") == 2


def test_the_best_value_is_chosen_among_seeds_that_all_have() -> None:
    """A is better than B with the only seed that both have, but its other seeds are worse."""
    a = [LOSSES, LOSSES + 0.2, LOSSES + 0.2]
    b = [LOSSES + 0.05]
    assert marked_labels({"a": point(a), "b": point(b)}) == {"a"}


def test_no_value_is_marked_if_seeds_were_scored_on_different_tokens() -> None:
    a, b = point([LOSSES] * 3), point([LOSSES + 0.5] * 3)
    assert marked_labels({"a": a, "b": replace(b, tokens_differ=True)}) == set()
