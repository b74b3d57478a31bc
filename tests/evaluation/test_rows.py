"""The rows of `evaluation.json`, and which requested rows are missing."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posenc.config.errors import RunError
from posenc.data.dataset import TokenArray
from posenc.evaluation.protocols import last_k, nonoverlapping
from posenc.evaluation.requests import missing_row_keys
from posenc.evaluation.scoring import Measurement, evaluation_row
from posenc.evaluation.windows import TokenWindows
from posenc.runs.evaluation_rows import check_same_tokens

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
TOKENS = TokenArray(np.zeros(3000), words=3, bytes=3000, documents=1, eos_id=0)


def test_a_text_with_hardly_any_words_has_no_perplexity_per_word() -> None:
    result = Measurement(np.full(3, 2000.0), np.full(3, 1000), 1.0, np.arange(1000))
    actual = evaluation_row(KEY, result, TokenWindows(TOKENS, nonoverlapping(3000, 3)), "text")
    assert actual["sum"] == 6000.0 and actual["count"] == 3000 and actual["loss"] == 2.0
    assert actual["perplexity_per_word"] is None
    assert actual["perplexity"] == actual["perplexity_per_byte"]
    assert actual["coverage"] == 1 and actual["full_count"] == 3000


def test_words_and_bytes_are_reported_for_a_whole_split_only() -> None:
    result = Measurement(np.array([0.0, 0.0, 1400.0]), np.array([0, 0, 700]), 1.0, np.arange(700))
    actual = evaluation_row(
        {**KEY, "stride": 1}, result, TokenWindows(TOKENS, last_k(3000, 3, 1)), "text"
    )
    assert actual["count"] == 700 and actual["full_count"] == 1000
    assert actual["coverage"] == pytest.approx(7 / 30)
    assert actual["perplexity"] == pytest.approx(math.exp(2))
    assert all(actual[name] is None for name in ("words", "bytes", "perplexity_per_byte"))


def test_accuracies_are_reported_if_counted() -> None:
    windows = TokenWindows(TOKENS, nonoverlapping(3000, 3))
    result = Measurement(np.full(3, 1.0), np.full(3, 1000), 1.0, np.arange(1000), 1500, 250)
    actual = evaluation_row(KEY, result, windows, "text")
    assert actual["accuracy"] == 0.5 and actual["exact"] == 0.25


def test_a_row_with_another_key_is_missing() -> None:
    for change in ({"length": 4}, {"stride": 2}, {"swap": "pi"}, {"longest": 9}):
        other = {**KEY, **change}
        assert missing_row_keys([KEY, other], [{**KEY, "count": 5, "full_count": 5}]) == [other]


def test_a_row_cut_short_by_a_budget_satisfies_only_the_same_budget() -> None:
    cut_short = {**KEY, "budget_tokens": 5, "count": 5, "full_count": 10}
    same, other = {**KEY, "budget_tokens": 5}, {**KEY, "budget_tokens": 9}
    assert missing_row_keys([same], [cut_short]) == []
    assert missing_row_keys([other], [cut_short]) == [other]
    assert missing_row_keys([KEY], [cut_short]) == [KEY]
    complete = {**cut_short, "count": 10}
    assert missing_row_keys([KEY], [complete]) == missing_row_keys([same], [complete]) == []


def test_a_row_without_budget_fields_is_complete() -> None:
    old = {name: KEY[name] for name in ("data", "split", "protocol", "length", "stride", "swap")}
    assert missing_row_keys([KEY], [{**old, "count": 5}]) == []


def test_fixed_targets_of_another_longest_length_replace_the_old_ones(tmp_path: Path) -> None:
    old = {**KEY, "count": 5, "full_count": 5, "tokens_hash": "a", "longest": 64}
    check_same_tokens(tmp_path, old, {**old, "longest": 128, "tokens_hash": "b"})
    with pytest.raises(RunError, match="delete the prepared corpus"):
        check_same_tokens(tmp_path, old, {**old, "tokens_hash": "b"})
