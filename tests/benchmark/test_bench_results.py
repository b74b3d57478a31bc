"""Rows, tables and figures computed from fixed timings."""

import csv
import io
from typing import Any

import pytest
from rich.console import Console

from posenc.benchmark.bench_report import cost_tables, finding, published_tables, to_csv
from posenc.benchmark.bench_results import (
    compare_kernels,
    kernel_table,
    published_ratios,
    read_published,
)
from posenc.benchmark.cost_figure import cost_figure
from posenc.config.errors import ConfigError
from posenc.report.encoding_styles import encoding_style

Rows = list[dict[str, Any]]
PUBLISHED = {
    "source": "a paper",
    "rows": [
        {"encoding": "nope", "length": 16, "train_wps": 300, "eval_wps": 900, "memory_gb": 8},
        {"encoding": "alibi", "length": 16, "train_wps": 200, "eval_wps": 300, "memory_gb": 10},
        {"encoding": "alibi", "length": 32, "train_wps": 200, "eval_wps": 300, "memory_gb": 10},
    ],
}


def test_ratios_are_computed_within_each_round(rows: Rows) -> None:
    nope, alibi = rows[:2]
    assert (nope["ratio"], nope["ratio_lowest"], nope["ratio_highest"]) == (1, 1, 1)
    assert alibi["ratios"] == [2.0, 1.5, 2.5]  # the ratio of the medians would be 2.5
    assert (alibi["ratio"], alibi["ratio_lowest"], alibi["ratio_highest"]) == (2.0, 1.5, 2.5)
    assert alibi["ratio_to"] == "nope" and alibi["peak_memory_ratio"] == 1.2
    assert [row["ratio"] for row in rows[2:]] == [1, 2]


def test_rates_and_utilization_come_from_the_median(rows: Rows) -> None:
    alibi = rows[1]
    assert alibi["milliseconds"] == 5000 and alibi["tokens_per_second"] == 64 / 5
    matrices = 2 * (4 * 32 * 32 + 2 * 32 * 64) + 50 * 32
    per_token = 2 * matrices + 2 * 2 * 32 * 16
    assert alibi["flops"] == 3 * 64 * per_token
    assert alibi["matmul_flops_per_second"] == 2 * 2048**3
    assert alibi["utilization"] == pytest.approx(3 * 64 * per_token / 5 / (2 * 2048**3))


def test_published_costs_become_ratios_to_the_same_baseline(rows: Rows) -> None:
    published = read_published(PUBLISHED)
    step = published_ratios(rows[1], published)
    assert step == {"published_ratio": 1.5, "published_memory_ratio": 1.25}
    forward = published_ratios({**rows[1], "pass": "forward"}, published)
    assert forward == {"published_ratio": 3.0, "published_memory_ratio": None}
    # no cost of nope was published at length 32
    assert set(published_ratios(rows[3], published).values()) == {None}


@pytest.mark.parametrize(
    "costs",
    [
        {"rows": []},
        {"source": "a paper", "rows": ["alibi"]},
        {"source": "a paper", "rows": [{"encoding": "alibi", "length": 16}]},
        {"source": "a paper", "rows": [{**PUBLISHED["rows"][0], "train_wps": 0}]},
        {"source": "a paper", "rows": [{**PUBLISHED["rows"][0], "train_wps": True}]},
        {"source": "a paper", "rows": [{**PUBLISHED["rows"][0], "encoding": ["alibi"]}]},
        {"source": "a paper", "rows": "alibi"},
        {"source": 3, "rows": PUBLISHED["rows"]},
    ],
)
def test_malformed_published_costs_are_errors(costs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="published"):
        read_published(costs)


@pytest.fixture
def rows_with_published(rows: Rows) -> Rows:
    """The rows, with published ratios."""
    return [row | published_ratios(row, read_published(PUBLISHED)) for row in rows]


def test_tables_and_csv_have_the_same_numbers(rows_with_published: Rows) -> None:
    first, second = cost_tables(rows_with_published)
    assert (first.title, second.title) == ("L = 16, training step", "L = 32, training step")
    alibi = "| alibi | auto: toeplitz | 5000 | 13 | 2.000 | 1.50–2.50 | 12 |"
    assert any(line.startswith(alibi) for line in first.to_markdown().splitlines())
    console = Console(width=90, record=True, file=io.StringIO())
    console.print(first)
    printed = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert any(
        line.startswith("alibi auto: toeplitz 5000 13 2.000 1.50–2.50 12") for line in printed
    )
    values = list(csv.DictReader(io.StringIO(to_csv(rows_with_published))))
    assert [float(row["ratio"]) for row in values] == [1, 2, 1, 2]
    (table,) = published_tables(rows_with_published, PUBLISHED)
    assert "a paper" in table.title
    assert "| alibi | 2.000 | 1.500 | 1.200 | 1.250 |" in table.to_markdown()


def test_the_figure_shows_every_ratio_and_the_published_ones(rows_with_published: Rows) -> None:
    figure = cost_figure(rows_with_published, "Cost", "of something", csv="")
    (panel,) = figure.panels
    (points,) = panel.data.values()
    measured = [point for point in points if not point.get("published")]
    assert [point["ratio"] for point in measured] == [1, 2, 1, 2]
    assert (measured[1]["low"], measured[1]["high"]) == (1.5, 2.5)
    published = [point for point in points if point.get("published")]
    assert [(point["length"], point["ratio"]) for point in published] == [
        ("L = 16", 1.0),
        ("L = 16", 1.5),
    ]
    assert ">alibi</text>" in figure.svg and ">L = 32</text>" in figure.svg


def test_the_figure_of_a_single_length_has_no_nan_in_its_svg(rows: Rows) -> None:
    """The marker sizes of a scale with one length would be NaN, so no markers would be drawn."""
    single_length = [{**row, "published_ratio": None} for row in rows if row["length"] == 16]
    svg = cost_figure(single_length, "Cost", "of something", csv="").svg
    assert "NaN" not in svg


def test_the_finding_has_the_ratios_of_the_table_and_their_ranges(
    rows_with_published: Rows,
) -> None:
    """The ratios are not those of the medians, which would be 1.20 and 3.00 here."""

    def row(encoding: str, milliseconds: float, *ratios: float) -> dict[str, Any]:
        keys = "ratio", "ratio_lowest", "ratio_highest"
        changes = dict(zip(keys, ratios, strict=True))
        return {
            **rows_with_published[0],
            "encoding": encoding,
            "milliseconds": milliseconds,
            **changes,
        }

    first, slow, middle = (
        row("nope", 10.0, 1.0, 1.0, 1.0),
        row("fox", 30.0, 2.9, 2.5, 3.5),
        row("rope", 12.0, 1.1, 0.9, 1.3),
    )
    assert finding([first, slow, middle]).endswith(
        ": nope takes 10 ms; of the 2 others, rope is the fastest: it takes 1.10 times as long"
        " (0.90 to 1.30). The slowest, fox, takes 2.90 times as long (2.50 to 3.50)."
    )
    kernels = [{**first, "kernel": "auto"}, {**slow, "encoding": "nope", "kernel": "reference"}]
    assert "nope (kernel=auto) takes 10 ms; nope (kernel=reference) takes 2" in finding(kernels)
    assert finding([first]).endswith("nope takes 10 ms.")


def test_encodings_have_the_same_colors_as_in_other_figures(rows_with_published: Rows) -> None:
    svg = cost_figure(rows_with_published, "Cost", "of something", csv="").svg
    for name in ("nope", "alibi"):
        assert f'fill="{encoding_style(name).color}"' in svg


def test_kernels_of_an_encoding_are_compared_within_each_round(rows: Rows) -> None:
    nope, alibi = rows[:2]
    slow = {**alibi, "kernels_used": "blocks", "milliseconds": 7e3, "seconds": [8.0, 9.0, 7.0]}
    (record,) = compare_kernels([nope, alibi, slow])
    assert (record["encoding"], record["length"], record["pass"]) == ("alibi", 16, "step")
    assert (record["auto"], record["fastest"], record["head_dim"]) == ("toeplitz", "toeplitz", 8)
    assert record["blocks"] == 1.5  # the median of 8/2, 9/6 and 7/5
    assert (record["toeplitz"], record["causal"], record["auto_over_fastest"]) == (1, None, 1)
    fast = {**slow, "milliseconds": 1e3, "seconds": [1.0, 2.0, 2.5]}
    (record,) = compare_kernels([nope, alibi, fast])
    assert (record["fastest"], record["auto_over_fastest"]) == ("blocks", 2)
    table = kernel_table([record]).to_markdown()
    assert "| alibi | 16 | step | toeplitz | blocks | 2.00 | - | 2.00 | 1.00 |" in table


def test_a_single_kernel_is_not_compared(rows: Rows) -> None:
    assert compare_kernels(rows) == []
