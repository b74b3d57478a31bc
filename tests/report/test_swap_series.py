"""The swaps of an encoding are the rows of one table and the lines of one figure."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from posenc.report.curve_set import PERPLEXITY, CurveSet
from posenc.report.curves import loss_curves
from posenc.report.encoding_styles import ENCODINGS, SWAPS, encoding_style, swap_styles
from posenc.report.experiment import read_experiment
from posenc.report.report_results import read_results
from posenc.report.result_tables import value_notes
from posenc.report.terminal_report import print_report
from posenc.report.write_report import tables_csv

LOSSES = {None: 3.0, "yarn factor=4": 2.0, "yarn": 2.5, "pi": 2.6, "own": 4.0}
"""Swap -> loss at 2L; at L, all swaps have the same loss."""


@pytest.fixture
def swapped(tmp_path: Path, fabricate: SimpleNamespace) -> Path:
    """RoPE and sinusoidal with swaps, ALiBi without."""
    for encoding in ("rope", "sinusoidal", "alibi"):
        swaps = LOSSES if encoding != "alibi" else {None: 3.0}
        rows = [fabricate.row(64, 2.0, swap=swap) for swap in swaps]
        rows += [fabricate.row(128, loss, swap=swap) for swap, loss in swaps.items()]
        fabricate.run(tmp_path / "swapped", fabricate.config(encoding, 64, 1), rows)
    return tmp_path / "swapped"


def merged_curves(folder: Path) -> list[CurveSet]:
    return loss_curves(read_experiment(folder))


def test_the_swaps_of_an_encoding_are_one_curve_set_in_a_fixed_order(swapped: Path) -> None:
    encodings, *with_swaps = merged_curves(swapped)
    assert {curve.label for curve in encodings.curves} == {"rope", "sinusoidal", "alibi"}
    assert encodings.swapped_encoding is None
    assert {curves.swapped_encoding for curves in with_swaps} == {"rope", "sinusoidal"}
    for curves in with_swaps:
        assert [c.label for c in curves.curves] == ["none", "pi", "yarn", "yarn factor=4", "own"]
        assert [c.points[-1].mean for c in curves.curves] == [3.0, 2.6, 2.5, 2.0, 4.0]
        assert curves.evaluation_key == encodings.evaluation_key


def test_none_is_the_row_that_scored_the_same_tokens_as_the_swaps(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    """The rows that scored all tokens are in the main table and are not compared with swaps.

    Rows of earlier weights are not in these tables.
    """
    few = {"count": 1000, "full_count": 100_000, "budget_tokens": 1000, "budget_seconds": None}
    rows = [
        row
        for at_tokens, increase in ((None, 0.0), (500, 1.0))
        for row in (
            fabricate.row(64, 2.0 + increase, at_tokens=at_tokens),
            fabricate.row(64, 2.6 + increase, at_tokens=at_tokens, **few),
            fabricate.row(64, 2.7 + increase, at_tokens=at_tokens, swap="pi", **few),
            fabricate.row(128, 2.2 + increase, at_tokens=at_tokens),
            fabricate.row(128, 2.8 + increase, at_tokens=at_tokens, **few),
            fabricate.row(128, 2.9 + increase, at_tokens=at_tokens, swap="pi", **few),
            fabricate.row(256, 2.3 + increase, at_tokens=at_tokens),
        )
    ]
    fabricate.run(tmp_path / "rope", fabricate.config("rope", 64, 1), rows)
    main, swaps = merged_curves(tmp_path / "rope")
    assert [point.mean for point in main.curves[0].points] == [2.0, 2.2, 2.3]
    values = {curve.label: [point.mean for point in curve.points] for curve in swaps.curves}
    assert values == {"none": [2.6, 2.8, 2.3], "pi": [2.7, 2.9]}


def test_curves_without_swaps_are_not_changed(tmp_path: Path, fabricate: SimpleNamespace) -> None:
    fabricate.run(tmp_path / "plain", fabricate.config("rope", 64, 1), [fabricate.row(64, 2.0)])
    (curves,) = merged_curves(tmp_path / "plain")
    assert curves.swapped_encoding is None and [curve.label for curve in curves.curves] == ["rope"]


def test_a_single_encoding_has_only_the_table_of_its_swaps(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    rows = [fabricate.row(64, 2.0), fabricate.row(64, 2.5, swap="pi")]
    fabricate.run(tmp_path / "rope", fabricate.config("rope", 64, 1), rows)
    results = read_results(tmp_path / "rope")
    assert [figure.file_stem for figure in results.figures] == ["perplexity_by_length_with_swaps"]
    (table,) = results.perplexity_tables
    assert (table.columns[0].name, [row[0][1].value for row in table.grid]) == (
        "swap",
        ["none", "pi"],
    )
    lines = csv.DictReader(io.StringIO(tables_csv(results.losses)))
    cells = [(row["encoding"], row["swap"], row["64_best"]) for row in lines]
    assert cells == [("rope", "none", "true"), ("rope", "pi", "false")]


def test_the_terminal_shows_swaps_by_parameter_in_one_table(swapped: Path) -> None:
    console = Console(file=(output := io.StringIO()), width=80)
    print_report(console, read_results(swapped), swapped / "index.html", full=False)
    lines = output.getvalue().splitlines()
    assert sum("at 128 tokens (2L) with swaps" in line for line in lines) == 1
    assert not any("Perplexity of rope with swaps" in line for line in lines)
    words = [line.split() for line in lines]
    assert ["rope", "yarn", "12.18", "*7.39"] in words
    assert ["sinusoidal", "none", "20.09", "-"] in words
    assert any(line.startswith("alibi") for line in lines)  # which has no swaps


def test_the_report_has_one_figure_of_encodings_and_one_of_swaps(swapped: Path) -> None:
    encodings, swaps = (f for f in read_results(swapped).figures if f.section == "results")
    assert "swap" not in encodings.file_stem
    at_2l = {
        (row["encoding"], row["swap"]): float(row["loss"])
        for row in csv.DictReader(io.StringIO(swaps.csv))
        if row["length"] == "128"
    }
    assert at_2l == {
        (encoding, swap or "none"): loss
        for encoding in ("rope", "sinusoidal")
        for swap, loss in LOSSES.items()
    }


def test_a_swap_has_the_same_style_in_every_report() -> None:
    few, many = swap_styles(["none", "yarn"]), swap_styles(["none", "pi", "ntk", "yarn", "own"])
    assert few["yarn"] == many["yarn"]
    assert len(set(many.values())) == len(many)
    factors = swap_styles(["yarn factor=2", "yarn factor=4"])
    assert len(set(factors.values())) == 2
    encodings = {encoding_style(name) for name in ENCODINGS}
    assert not encodings & {*many.values(), *factors.values()}


def test_the_line_without_a_swap_has_the_style_of_its_encoding() -> None:
    styles = swap_styles(SWAPS, encoding_style("rope"))
    assert styles["none"] == encoding_style("rope")
    assert styles["none"].color not in {styles[name].color for name in ("pi", "ntk", "yarn")}
    several = swap_styles(SWAPS)["none"]
    assert several not in {encoding_style(name) for name in ENCODINGS}


def test_swaps_with_different_budgets_are_neither_averaged_nor_compared(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    def row(length: int, loss: float, budget: int, swap: str | None = None) -> dict[str, Any]:
        scored = {"count": budget, "full_count": 50_000, "tokens_hash": str(budget)}
        return fabricate.row(length, loss, swap=swap, budget_tokens=budget, **scored)

    for seed in (1, 2):
        rows = [row(length, 3.0, 20_000) for length in (64, 128)]
        rows += [row(64, 2.0, 20_000, "yarn"), row(128, 2.0, 5_000, "yarn")]
        rows += [row(128, 2.5, 20_000 if seed == 1 else 5_000, "pi")]
        fabricate.run(tmp_path / "rope", fabricate.config("rope", 64, seed), rows)
    results = read_results(tmp_path / "rope")
    ((curves, rows),) = results.losses
    assert curves.swapped_encoding == "rope"
    cells = {(r.curve.label, x): value for r in rows for x, value in r.values.items()}
    assert cells["pi", 128].point.seeds == (1,)  # the other seed was evaluated with another budget
    assert [key for key, value in cells.items() if value.best] == [("yarn", 64)]
    assert any(
        "at 128 tokens average over different numbers" in n for n in value_notes(PERPLEXITY, [rows])
    )
    seeds = dict(results.setup)["Seeds"]
    assert seeds.startswith("1, 2; excluded") and seeds.endswith(": seed 2 of rope")
    (line, *_) = results.conclusions
    assert "lowest for yarn at 64 tokens" in line
    assert "The values at 128 tokens cannot be compared" in line

    console = Console(file=(output := io.StringIO()), width=100)
    print_report(console, results, tmp_path / "index.html", full=False)
    assert "different numbers of tokens were scored" in " ".join(output.getvalue().split())
