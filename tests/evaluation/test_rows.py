"""The rows of an evaluation, at the edges."""

import numpy as np

from posenc.data.tokenized import TokenStream
from posenc.evaluation.measure import Measurement
from posenc.evaluation.rows import missing, row

KEY = {
    "data": "f",
    "split": "test",
    "protocol": "nonoverlapping",
    "length": 3,
    "stride": None,
    "swap": None,
}


def test_a_text_of_hardly_any_words_has_no_perplexity_per_word() -> None:
    stream = TokenStream(np.zeros(3000), words=3, bytes=3000, documents=1, end_of_text=0)
    result = Measurement(np.full(3, 2000.0), np.full(3, 1000), 1.0)
    made = row(KEY, result, stream, "text")
    assert made["sum"] == 6000.0 and made["count"] == 3000 and made["loss"] == 2.0
    assert made["perplexity_per_word"] is None
    assert made["perplexity"] == made["perplexity_per_byte"]


def test_missing_rows_are_those_of_another_key() -> None:
    other = {**KEY, "length": 4}
    assert missing([KEY, other], [{**KEY, "sum": 1.0}]) == [other]
