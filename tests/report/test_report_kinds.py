"""Each kind of figure has the numbers of the record: intervals, ratios, accuracies, bounds."""

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import t

from posenc.encodings.spectra.base_bound import smallest_base
from posenc.report import write_report
from posenc.report.bands import band, band_text

SEEDS = (1, 2, 3)
SOURCE = "Some & Others 2022, Table 9"


def points(index: Path, stem: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(index.with_name(f"{stem}.csv").read_text())))


def test_three_seeds_have_students_interval_and_two_their_ends() -> None:
    values = [3.0, 3.1, 3.3]
    half = t.ppf(0.975, 2) * np.std(values, ddof=1) / np.sqrt(3)
    found = band(values)
    assert (found.low, found.high) == pytest.approx(
        (np.mean(values) - half, np.mean(values) + half)
    )
    assert (band([3.0, 3.4]).low, band([3.0, 3.4]).high) == (3.0, 3.4)
    assert "interval" not in band([3.0, 3.4]).description


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 1), "One seed"),
        ((2,), "Mean of 2 seeds, band from the lowest to the highest"),
        ((1, 3), "Mean of 1-3 seeds, band the 95% t interval of the mean"),
        ((2, 3), "95% t interval of the mean of 3 seeds or more, else from the lowest"),
    ],
)
def test_a_caption_says_what_its_bands_are(counts: tuple[int, ...], words: str) -> None:
    assert words in band_text(band([1.0] * count) for count in counts)


def test_ratios_to_the_training_length_are_paired_by_seed(various: SimpleNamespace) -> None:
    """Seeds differ by 0.01 nats at every length, so that their ratios are all alike."""
    rows = points(various.index, "perplexity_relative")
    (at,) = [
        row
        for row in rows
        if (row["encoding"], row["published"], row["length"]) == ("alibi", "false", "256")
    ]
    assert float(at["relative_perplexity"]) == pytest.approx(np.exp(-0.04), rel=1e-5)
    assert float(at["low"]) == pytest.approx(float(at["high"]), rel=1e-5)
    over = {row["length"]: row for row in rows if row["published"] == "true"}
    assert {length: float(row["relative_perplexity"]) for length, row in over.items()} == {
        "64": 1.0,
        "128": 0.95,
        "512": 0.9,
    }
    assert f"({SOURCE})".replace("&", "&amp;") in various.index.read_text()


def test_a_task_has_accuracies_and_no_perplexities(tasks: SimpleNamespace) -> None:
    rows = points(tasks.index, "accuracy_by_length")
    found = {(row["data"], row["encoding"], row["length"]): row for row in rows}
    assert set(found) == {
        (task, encoding, length)
        for task in ("task_copy", "task_even_pairs")
        for encoding in ("rope", "alibi")
        for length in ("64", "128", "256")
    }
    row = found["task_copy", "rope", "128"]
    assert float(row["accuracy"]) == pytest.approx(0.71)
    assert float(found["task_copy", "alibi", "64"]["high"]) <= 1
    names = {file.stem for file in tasks.index.parent.iterdir()}
    assert not names & {"perplexity_by_length", "perplexity_relative", "extrapolation"}
    assert "**0.960**" in tasks.index.with_name("accuracy.md").read_text()
    assert "0.710" in tasks.printed and "Perplexity" not in tasks.printed


def test_cost_is_the_median_speed_at_twice_the_length(various: SimpleNamespace) -> None:
    rows = {row["encoding"]: row for row in points(various.index, "cost_against_quality")}
    speeds = [1000.0 + 100 * seed for seed in SEEDS]
    assert float(rows["alibi"]["tokens_per_second"]) == pytest.approx(
        np.exp(np.mean(np.log(speeds))), rel=1e-5
    )
    assert float(rows["alibi"]["perplexity"]) == pytest.approx(np.exp(3.62 - 0.02), rel=1e-5)


def test_the_heat_is_the_loss_above_the_best_of_its_column(various: SimpleNamespace) -> None:
    rows = points(various.index, "loss_by_position_heat")
    columns: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        columns.setdefault(row["position"], []).append(
            (float(row["loss"]), float(row["above_best"]))
        )
    assert all(len(cells) == 2 for cells in columns.values())
    for cells in columns.values():
        best = min(loss for loss, _ in cells)
        assert [above for _, above in cells] == pytest.approx(
            [loss - best for loss, _ in cells], abs=2e-6
        )
    assert max(above for cells in columns.values() for _, above in cells) > 0.1


def test_the_bound_stands_on_the_figure_of_bases(bases: SimpleNamespace) -> None:
    rows = points(bases.index, "perplexity_by_base")
    found = {(row["length"], row["base"]): float(row["perplexity"]) for row in rows}
    assert set(found) == {
        (f"{at} ({s})", base) for at, s in ((16, "L"), (32, "2L")) for base in ("100", "10000")
    }
    svg = bases.index.with_name("perplexity_by_base.svg").read_text()
    for name, length in (("L", 16), ("2L", 32)):
        assert f"bound for {name}: {smallest_base(32, length):,.0f}" in svg


def test_other_differences_than_the_base_make_no_figure_of_bases(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for seed, layout in enumerate(("interleaved", "half")):
        for base in (100, 10000):
            encoding = {"layout": layout, "spectrum": {"base": base}}
            config = fabricate.config("rope", 16, seed, encoding=encoding)
            fabricate.run(tmp_path / "two", config, [fabricate.row(16, 3.0)])
    index = write_report(tmp_path / "two", console)
    assert not index.with_name("perplexity_by_base.csv").exists()


def test_rerunning_is_told_with_version_and_data(various: SimpleNamespace) -> None:
    text = various.index.read_text()
    for words in ("posenc train name=various", "posenc report name=various", "posenc 0.2.0 from"):
        assert words in text
    assert "data f00dfeed0123" in text


def test_a_task_label_leaves_out_what_its_panel_says(tasks: SimpleNamespace) -> None:
    labels: set[Any] = {row["encoding"] for row in points(tasks.index, "accuracy_by_length")}
    assert labels == {"rope", "alibi"}
    assert (
        json.loads((tasks.folder / "plan.json").read_text())["command"] in tasks.index.read_text()
    )
