"""N-gram models in the report: rows of the table, a line in the figure, and ngrams.csv."""

import csv
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from consoles import printed
from posenc.report.curves import loss_curves
from posenc.report.encoding_styles import line_styles
from posenc.report.experiment import read_experiment
from posenc.report.length_figures import perplexity_by_length
from posenc.report.write_report import write_report

LOSSES = {1: {2: 4.3, 3: 3.8}, 2: {2: 4.5, 3: 3.9}}  # by seed and order
MEANS = {2: 4.4, 3: 3.85}


@pytest.fixture
def folder(tmp_path: Path, fabricate: SimpleNamespace) -> Path:
    """Two seeds of one encoding, and a run at another training length without n-gram models."""
    for seed, losses in LOSSES.items():
        config = fabricate.config("alibi", 64, seed)
        row = fabricate.row(64, 3.0)
        path = fabricate.run(tmp_path / "sweep", config, [row, fabricate.row(128, 2.9)])
        rows = [
            {"order": order, "loss": loss, **{key: row[key] for key in ("data", "split", "count")}}
            for order, loss in losses.items()
        ]
        rows.append(rows[0] | {"data": "another corpus", "loss": 1.0})
        (path / "ngrams.json").write_text(json.dumps({"rows": rows}))
    fabricate.run(tmp_path / "sweep", fabricate.config("alibi", 128, 1), [fabricate.row(128, 3.0)])
    return tmp_path / "sweep"


def test_the_table_has_a_row_for_each_order(folder: Path, console: Console) -> None:
    write_report(folder, console)
    short, long = (folder / "report/extrapolation.md").read_text().split("trained at L = 128")
    for order, loss in MEANS.items():
        assert f"| {order}-gram model | - | {math.exp(loss):.2f} | {math.exp(loss):.2f} |" in short
    assert "Kneser-Ney" in short and "Kneser-Ney" not in long and "-gram model" not in long


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("protocol", ["nonoverlapping", "fixed_target"])
def test_with_an_evaluation_budget_lengths_are_not_compared_with_each_other_or_with_ngram_models(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console, full: bool, protocol: str
) -> None:
    """With fixed targets, all lengths score the same part of the text."""
    budget = {"count": 40_000, "full_count": 80_000, "budget_tokens": 40_000, "protocol": protocol}
    rows = [fabricate.row(64, 3.0, **budget), fabricate.row(128, 2.9, **budget)]
    path = fabricate.run(tmp_path / "sweep", fabricate.config("alibi", 64, 1), rows)
    ngram = {"order": 3, "loss": 3.8, "count": 80_000, "split": "validation"}
    (path / "ngrams.json").write_text(json.dumps({"rows": [ngram | {"data": rows[0]["data"]}]}))
    write_report(tmp_path / "sweep", console, full=full)
    text = " ".join(printed(console).split())
    assert ("divided by that at 64: alibi" in text) == (full and protocol == "fixed_target")
    assert "as few as 50% of the targets were scored" in text
    assert "gram model" not in text


def test_the_finding_and_the_limitations_name_encodings_that_are_worse_than_a_trigram(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for encoding, loss in (("alibi", 3.0), ("nope", 3.9)):
        row = fabricate.row(64, loss)
        path = fabricate.run(tmp_path / "sweep", fabricate.config(encoding, 64, 1), [row])
        scored = {key: row[key] for key in ("data", "split", "count")}
        ngrams = [scored | {"order": 3, "loss": 3.8}, scored | {"order": 4, "loss": 3.7}]
        (path / "ngrams.json").write_text(json.dumps({"rows": ngrams}))
    write_report(tmp_path / "sweep", console)
    short_table = printed(console)
    write_report(tmp_path / "sweep", console, full=True)
    text = " ".join(printed(console).split())
    assert re.search(r"3-gram model +44\.70", short_table)
    assert re.search(r"4-gram model +40\.45", short_table)
    assert text.startswith("L = 64: 1 of 2 encodings is worse than the 3-gram model (nope).")
    assert "L = 64: nope had a higher perplexity than a 3-gram model" in text


def test_the_figure_has_a_line_for_the_best_order(folder: Path) -> None:
    experiment = read_experiment(folder)
    chart = perplexity_by_length(loss_curves(experiment), line_styles({"alibi": "alibi"}))
    assert chart is not None
    by_label = {line.label: line for line in chart.subplots[0].lines}
    assert by_label.keys() == {"alibi", "3-gram model"}
    points = [(point.x, point.y.mean) for point in by_label["3-gram model"].points]
    assert points == [(64, pytest.approx(math.exp(3.85))), (128, pytest.approx(math.exp(3.85)))]
    assert [line.label for line in chart.subplots[1].lines] == ["alibi"]


def test_the_csv_has_every_model_of_every_run(folder: Path, console: Console) -> None:
    write_report(folder, console)
    rows = list(csv.DictReader((folder / "report/ngrams.csv").read_text().splitlines()))
    losses = {(int(row["seed"]), int(row["order"]), row["data"]): row["loss"] for row in rows}
    assert len(losses) == 6
    assert losses[2, 3, rows[0]["data"]] == "3.9"


def test_ngram_models_of_runs_with_other_numbers_of_tokens_are_left_out(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    for tokens, loss in ((1_000_000, 5.0), (1_500_000, 4.0)):
        row = fabricate.row(64, 3.0)
        config = fabricate.config("alibi", 64, 1, tokens=tokens)
        path = fabricate.run(tmp_path / "sweep", config, [row])
        ngram = {"order": 3, **{key: row[key] for key in ("data", "split", "count")}}
        bigram = {**ngram, "order": 2, "loss": 6.0}
        rows = [bigram, {**ngram, "loss": loss}]
        (path / "ngrams.json").write_text(json.dumps({"rows": rows}))
    (curves,) = loss_curves(read_experiment(tmp_path / "sweep"))
    assert curves.ngrams == {2: 6.0}
