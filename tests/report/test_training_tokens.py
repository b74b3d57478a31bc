"""Rows from before the end of training: their figure, claims about them, curves without them."""

import csv
import io
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from posenc.report.claim_parser import parse_claims
from posenc.report.curves import loss_curves
from posenc.report.encoding_styles import line_styles
from posenc.report.experiment import Experiment, read_experiment
from posenc.report.experiment_figures import relative_perplexity_by_tokens
from posenc.report.judge import ClauseVerdict, judge
from posenc.report.report_results import read_results
from posenc.report.runs_table import runs_csv

FINAL = 1_500_000
TOKENS = (100_000, 400_000, FINAL)
SEEDS = (1, 2, 3)
EVALUATION = {"evaluation": {"split": "validation", "at_tokens": list(TOKENS[:2])}}
GROWTH = {1: 0.30, 2: 0.33, 3: 0.27}
"""Seed -> increase of log(perplexity at 2L / perplexity at L) per factor of 10 in tokens."""


def log_ratio(seed: int, tokens: int) -> float:
    return 0.1 + GROWTH[seed] * math.log10(tokens / TOKENS[0])


def loss(seed: int, tokens: int) -> float:
    """Return the loss at L."""
    return 5 - 0.3 * math.log10(tokens) + 0.01 * seed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, fabricate: SimpleNamespace) -> Path:
    """RoPE with three seeds, evaluated at L and 2L after each of TOKENS, with and without swaps."""
    sweep: Path = tmp_path_factory.mktemp("tokens") / "sweep"
    for seed in SEEDS:
        rows = []
        for tokens in TOKENS:
            at_tokens = None if tokens == FINAL else tokens
            at_length = {64: loss(seed, tokens), 128: loss(seed, tokens) + log_ratio(seed, tokens)}
            rows += [fabricate.row(n, x, at_tokens=at_tokens) for n, x in at_length.items()]
        rows += [{**row, "swap": "window"} for row in rows]
        fabricate.run(sweep, fabricate.config("rope", 64, seed, **EVALUATION), rows)
        ngram = {"order": 3, "data": rows[0]["data"], "split": "validation", "loss": 3.9}
        ngrams = {"rows": [{**ngram, "count": rows[0]["count"]}]}
        (next(sweep.glob(f"rope-L64-s{seed}-*")) / "ngrams.json").write_text(json.dumps(ngrams))
    return sweep


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def judge_clause(folder: Path, **claim: Any) -> ClauseVerdict:
    experiment: Experiment = read_experiment(folder)
    [verdict] = judge(parse_claims([{"statement": "a claim", **claim}]), experiment)
    return verdict.clauses[0]


def test_other_curves_have_only_the_end_of_training(folder: Path) -> None:
    sets = loss_curves(read_experiment(folder))
    unswapped = [c for curves in sets for c in curves.curves if c.label == "none"]
    points = [point for curve in unswapped for point in curve.points]
    num_ratios = {64: 0, 128: 1}
    assert [point.x for point in points] == list(num_ratios)
    for point in points:
        ratios = [num_ratios[int(point.x)] * log_ratio(seed, FINAL) for seed in SEEDS]
        losses = [loss(seed, FINAL) + r for seed, r in zip(SEEDS, ratios, strict=True)]
        assert point.values == pytest.approx(losses)


def test_the_figure_has_ratios_paired_by_seed_at_every_number_of_training_tokens(
    folder: Path,
) -> None:
    styles = line_styles({"rope": "rope"})
    chart = relative_perplexity_by_tokens(read_experiment(folder), styles)
    assert chart is not None
    for subplot in chart.subplots:
        assert "evaluated in windows of 128" in subplot.title
    points = records(chart.csv)
    unswapped = {int(point["tokens"]): point for point in points if point["swap"] == "-"}
    assert list(unswapped) == list(TOKENS)
    assert len(points) == 2 * len(TOKENS)
    for tokens in TOKENS:
        ratios = [log_ratio(seed, tokens) for seed in SEEDS]
        low = np.mean(ratios) - stats.t.ppf(0.975, 2) * stats.sem(ratios)
        point = unswapped[tokens]
        assert point["length"] == "128"
        assert float(point["relative_perplexity"]) == pytest.approx(
            math.exp(np.mean(ratios)), rel=1e-5
        )
        assert float(point["low"]) == pytest.approx(math.exp(low), rel=1e-5)


def test_without_intermediate_rows_there_is_no_figure(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    rows = [fabricate.row(64, 3.0), fabricate.row(128, 3.1)]
    fabricate.run(tmp_path / "sweep", fabricate.config("rope", 64, 1), rows)
    experiment = read_experiment(tmp_path / "sweep")
    assert relative_perplexity_by_tokens(experiment, line_styles({"rope": "rope"})) is None


def test_a_run_without_rows_from_the_end_of_training_is_only_in_this_figure(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    """An interrupted evaluation leaves such a run, because it begins with the earlier weights."""
    rows = [fabricate.row(n, loss, at_tokens=TOKENS[0]) for n, loss in ((64, 3.0), (128, 3.5))]
    fabricate.run(tmp_path / "sweep", fabricate.config("rope", 64, 1, **EVALUATION), rows)
    stems = [figure.file_stem for figure in read_results(tmp_path / "sweep").figures]
    assert stems == ["relative_perplexity_by_tokens"]


def test_a_run_with_another_budget_is_not_in_this_figure(
    folder: Path, tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    copy = tmp_path / "sweep"
    shutil.copytree(folder, copy)
    budget = {"budget_tokens": 41_000, "budget_seconds": None, "count": 40_960}
    rows = [
        fabricate.row(n, 3.2, at_tokens=at_tokens, full_count=81_920, **budget)
        for n in (64, 128)
        for at_tokens in (None, *TOKENS[:-1])
    ]
    fabricate.run(copy, fabricate.config("nope", 64, 1, **EVALUATION), rows)
    figures = {figure.file_stem: figure for figure in read_results(copy).figures}
    lines = records(figures["relative_perplexity_by_tokens"].csv)
    assert "nope" not in {line["encoding"] for line in lines}


def test_runs_csv_has_the_training_tokens_of_each_measurement(folder: Path) -> None:
    rows = records(runs_csv(read_experiment(folder)))
    assert len(rows) == len(SEEDS) * len(TOKENS) * 4
    assert {int(row["tokens"]) for row in rows} == set(TOKENS)


def test_a_claim_selects_training_tokens(folder: Path) -> None:
    def change(**selectors: Any) -> float | None:
        left = {"perplexity": {"length": "2L", **selectors}, "change_from": {"length": "L"}}
        return judge_clause(folder, left=left, **{"is": "above"}, right=0.0).left

    for tokens in TOKENS:
        mean = np.mean([log_ratio(seed, tokens) for seed in SEEDS])
        assert change(tokens=tokens) == pytest.approx(math.expm1(mean))
    assert change() == change(tokens=FINAL)


def test_the_trend_of_a_change_is_a_slope_per_seed(folder: Path) -> None:
    left = {
        "perplexity": {"encoding": "rope", "length": "2L", "tokens": list(TOKENS)},
        "change_from": {"length": "L"},
        "trend": "tokens",
    }
    clause = judge_clause(folder, left=left, **{"is": "above"}, right=0.0)
    slopes = list(GROWTH.values())
    assert clause.left == pytest.approx(np.mean(slopes))
    low, high = stats.t.interval(0.95, 2, np.mean(slopes), stats.sem(slopes))
    assert clause.difference is not None
    assert (clause.difference.low, clause.difference.high) == pytest.approx((low, high))
    assert clause.outcome == "holds"
    assert "log (perplexity of rope at 2L / perplexity of rope at L)" in str(clause.clause)


def test_an_intermediate_checkpoint_is_not_compared_with_ngrams_of_all_tokens(folder: Path) -> None:
    for tokens, outcome in ((FINAL, "holds"), (TOKENS[0], "not comparable")):
        left = {"perplexity": {"length": "L", "tokens": tokens}}
        right = {"ngram": 3}
        assert judge_clause(folder, left=left, **{"is": "below"}, right=right).outcome == outcome


def test_the_command_for_a_missing_row_has_its_training_tokens(folder: Path) -> None:
    left = {"perplexity": {"length": "4L", "tokens": TOKENS[0]}}
    clause = judge_clause(folder, left=left, **{"is": "below"}, right=9.0)
    assert clause.outcome == "not measured"
    assert "evaluation.at_tokens=[100000]" in (clause.reason or "").replace("'", "")
