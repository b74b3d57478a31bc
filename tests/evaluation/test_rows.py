"""The rows of an evaluation, at the edges."""

import math
from typing import Any

import numpy as np
import pytest

from posenc.data.token_array import TokenArray
from posenc.evaluation.measure import Measurement
from posenc.evaluation.protocols.last_k import ends
from posenc.evaluation.protocols.nonoverlapping import blocks
from posenc.evaluation.rows import missing, row
from posenc.evaluation.windows import StreamWindows

KEY: dict[str, Any] = {
    "data": "f",
    "split": "test",
    "protocol": "nonoverlapping",
    "length": 3,
    "stride": None,
    "swap": None,
    "longest": None,
    "budget_seconds": None,
    "budget_tokens": None,
}
STREAM = TokenArray(np.zeros(3000), words=3, bytes=3000, documents=1, end_of_text=0)


def test_a_text_of_hardly_any_words_has_no_perplexity_per_word() -> None:
    result = Measurement(np.full(3, 2000.0), np.full(3, 1000), 1.0, np.arange(1000))
    made = row(KEY, result, StreamWindows(STREAM, blocks(3000, 3)), "text")
    assert made["sum"] == 6000.0 and made["count"] == 3000 and made["loss"] == 2.0
    assert made["perplexity_per_word"] is None
    assert made["perplexity"] == made["perplexity_per_byte"]
    assert made["coverage"] == 1 and made["full_count"] == 3000


def test_words_and_bytes_are_told_of_a_whole_split_alone() -> None:
    result = Measurement(np.array([0.0, 0.0, 1400.0]), np.array([0, 0, 700]), 1.0, np.arange(700))
    made = row({**KEY, "stride": 1}, result, StreamWindows(STREAM, ends(3000, 3, 1)), "text")
    assert made["count"] == 700 and made["full_count"] == 1000
    assert made["coverage"] == pytest.approx(7 / 30)
    assert made["perplexity"] == pytest.approx(math.exp(2))
    assert all(made[name] is None for name in ("words", "bytes", "perplexity_per_byte"))


def test_accuracies_stand_where_a_protocol_asks_for_them() -> None:
    windows = StreamWindows(STREAM, blocks(3000, 3))
    result = Measurement(np.full(3, 1.0), np.full(3, 1000), 1.0, np.arange(1000), 1500, 250)
    made = row(KEY, result, windows, "text")
    assert made["accuracy"] == 0.5 and made["exact"] == 0.25


def test_missing_rows_are_those_of_another_key() -> None:
    for other in ({"length": 4}, {"stride": 2}, {"swap": "pi"}, {"longest": 9}):
        wanted = {**KEY, **other}
        assert missing([KEY, wanted], [{**KEY, "count": 5, "full_count": 5}]) == [wanted]


def test_a_row_that_a_budget_cut_short_serves_that_budget_alone() -> None:
    cut = {**KEY, "budget_tokens": 5, "count": 5, "full_count": 10}
    same, other = {**KEY, "budget_tokens": 5}, {**KEY, "budget_tokens": 9}
    assert missing([same], [cut]) == []
    assert missing([other], [cut]) == [other]
    assert missing([KEY], [cut]) == [KEY]
    whole = {**cut, "count": 10}
    assert missing([KEY], [whole]) == missing([same], [whole]) == []


def test_a_row_of_a_version_without_budgets_is_whole() -> None:
    old = {name: KEY[name] for name in ("data", "split", "protocol", "length", "stride", "swap")}
    assert missing([KEY], [{**old, "count": 5}]) == []
