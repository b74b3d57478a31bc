"""The rows of `evaluation.json`: what they are keyed by and what they say."""

import math
from typing import Any

from omegaconf import DictConfig

from posenc.config.settings import evaluation_lengths
from posenc.data.tokenized import TokenStream
from posenc.evaluation.measure import Measurement
from posenc.record.evaluation import row_key
from posenc.record.memory import peak_megabytes


def requested(config: DictConfig, fingerprint: str) -> list[dict[str, Any]]:
    """The keys of all rows that a configuration asks for on the data of that fingerprint."""
    return [
        {
            "data": fingerprint,
            "split": config.evaluation.split,
            "protocol": protocol,
            "length": length,
            "stride": None,
            "swap": None,
        }
        for length in evaluation_lengths(config)
        for protocol in config.evaluation.protocols
    ]


def missing(wanted: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the wanted keys that no row has yet."""
    there = {row_key(row) for row in rows}
    return [key for key in wanted if row_key(key) not in there]


def row(key: dict[str, Any], result: Measurement, stream: TokenStream, name: str) -> dict[str, Any]:
    """A full row: exact sum and count, and the means that follow from them."""
    total, count = float(result.sums.sum()), int(result.counts.sum())
    return {
        **key,
        "data_name": name,
        "sum": total,
        "count": count,
        "loss": total / count,
        "perplexity": _exp(total / count),
        "words": stream.words,
        "bytes": stream.bytes,
        "perplexity_per_word": _exp(total / max(1, stream.words)),
        "perplexity_per_byte": _exp(total / max(1, stream.bytes)),
        "seconds": round(result.seconds, 3),
        "tokens_per_second": round(count / result.seconds, 1),
        "peak_memory_mb": round(peak_megabytes(), 1),
    }


def _exp(loss: float) -> float | None:
    """None past the largest float, as where a text has hardly any white space to tell its words."""
    return math.exp(loss) if loss < 700 else None
