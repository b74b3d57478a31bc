"""Rows, tables and figures from seconds that are known."""

import csv
import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from posenc.benchmark.figure import draw
from posenc.benchmark.published import beside, read_published
from posenc.benchmark.tables import BESIDE, COST, markdown, terminal, to_csv
from posenc.config.errors import ConfigError

Rows = list[dict[str, Any]]
PUBLISHED = {
    "source": "a paper",
    "rows": [
        {"encoding": "nope", "length": 16, "train_wps": 300, "eval_wps": 900, "memory_gb": 8},
        {"encoding": "alibi", "length": 16, "train_wps": 200, "eval_wps": 300, "memory_gb": 10},
        {"encoding": "alibi", "length": 32, "train_wps": 200, "eval_wps": 300, "memory_gb": 10},
    ],
}


def test_ratios_are_formed_within_a_round(measured: Rows) -> None:
    nope, alibi = measured[:2]
    assert (nope["ratio"], nope["ratio_lowest"], nope["ratio_highest"]) == (1, 1, 1)
    assert alibi["ratios"] == [2.0, 1.5, 2.5]  # the ratio of the medians would be 2.5
    assert (alibi["ratio"], alibi["ratio_lowest"], alibi["ratio_highest"]) == (2.0, 1.5, 2.5)
    assert alibi["ratio_to"] == "nope" and alibi["peak_memory_ratio"] == 1.2
    assert [row["ratio"] for row in measured[2:]] == [1, 2]


def test_rates_and_utilisation_are_those_of_the_median(measured: Rows) -> None:
    alibi = measured[1]
    assert alibi["milliseconds"] == 5000 and alibi["tokens_per_second"] == 64 / 5
    matrices = 2 * (4 * 32 * 32 + 2 * 32 * 64) + 50 * 32
    per_token = 2 * matrices + 2 * 2 * 32 * 16
    assert alibi["flops"] == 3 * 64 * per_token
    assert alibi["product_flops_per_second"] == 2 * 2048**3
    assert alibi["utilisation"] == pytest.approx(3 * 64 * per_token / 5 / (2 * 2048**3))


def test_published_numbers_become_ratios_to_the_same_encoding(measured: Rows) -> None:
    published = read_published(PUBLISHED)
    step = beside(measured[1], published)
    assert step == {"published_ratio": 1.5, "published_memory_ratio": 1.25}
    forward = beside({**measured[1], "pass": "forward"}, published)
    assert forward == {"published_ratio": 3.0, "published_memory_ratio": None}
    assert set(beside(measured[3], published).values()) == {None}  # nope is not there at 32


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": []},
        {"source": "a paper", "rows": ["alibi"]},
        {"source": "a paper", "rows": [{"encoding": "alibi", "length": 16}]},
        {"source": "a paper", "rows": [{**PUBLISHED["rows"][0], "train_wps": 0}]},
    ],
)
def test_what_is_no_published_row_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="published"):
        read_published(wrong)


def test_all_tables_have_the_same_numbers(measured: Rows) -> None:
    rows = [row | beside(row, read_published(PUBLISHED)) for row in measured]
    lines = markdown(rows, COST).splitlines()
    assert lines[3].startswith(
        "| 16 | step | alibi | auto: toeplitz | 5000 | 13 | 2.000 | 1.50–2.50 | 12 |"
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal(rows, COST))
    printed = [line.split() for line in console.export_text().splitlines()]
    assert printed[1] == ["L=16", "step"]
    assert " ".join(printed[3][:8]) == "alibi auto: toeplitz 5000 13 2.000 1.50–2.50 12"
    found = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert [float(row["ratio"]) for row in found] == [1, 2, 1, 2]
    assert markdown(rows[:2], BESIDE).splitlines()[3] == (
        "| 16 | step | alibi | 2.000 | 1.500 | 1.200 | 1.250 |"
    )


def test_the_figure_marks_every_ratio_and_what_was_published(measured: Rows) -> None:
    rows = [row | beside(row, read_published(PUBLISHED)) for row in measured]
    (axes,) = draw(rows, "Cost", "of something").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["nope", "alibi"]
    (hollow,) = (line for line in axes.get_lines() if "published" in str(line.get_label()))
    assert hollow.get_label() == "L = 16, published"
    assert np.asarray(hollow.get_xdata()).tolist() == [1.0, 1.5]
    middle, _, bars = axes.containers[0]
    assert list(middle.get_xdata()) == [1, 2]
    assert bars[0].get_segments()[1][:, 0] == pytest.approx([1.5, 2.5])
