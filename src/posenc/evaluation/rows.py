"""The rows of `evaluation.json`: what they are keyed by and what they say."""

import math
from itertools import product
from typing import Any

from omegaconf import DictConfig

from posenc.config.settings import PROTOCOLS, evaluation_lengths
from posenc.config.swaps import swaps_of
from posenc.evaluation.measure import Measurement
from posenc.evaluation.windows import Windows
from posenc.runs.evaluation_rows import row_key
from posenc.runs.memory import peak_megabytes


def requested(config: DictConfig, fingerprint: str) -> list[dict[str, Any]]:
    """The keys of all rows that a configuration asks for on the data of that fingerprint.

    Besides its key, `stride` being the targets scored in a window, each has what else has to agree
    before a row of that key is taken for it: the budget, and for fixed_target the `longest`
    length, whose windows say which the targets are.
    """
    asked, lengths = config.evaluation, evaluation_lengths(config)
    return [
        {
            "data": fingerprint,
            "split": asked.split,
            "protocol": protocol,
            "length": length,
            "stride": asked[knob] if (knob := PROTOCOLS[protocol]) else None,
            "swap": swap,
            "longest": lengths[-1] if protocol == "fixed_target" else None,
            "budget_seconds": asked.budget_seconds,
            "budget_tokens": asked.budget_tokens,
        }
        for swap, length, protocol in product(swaps_of(config), lengths, asked.protocols)
    ]


def missing(wanted: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the wanted keys that no row has yet."""
    there = {row_key(row): row for row in rows}
    return [key for key in wanted if not _serves(there.get(row_key(key)), key)]


def row(key: dict[str, Any], result: Measurement, windows: Windows, name: str) -> dict[str, Any]:
    """A full row: exact sum and count, and the means that follow from them.

    `full_count` is what the protocol scores without a budget, `coverage` the share of the split's
    tokens that were scored. Words and bytes are told where that is all of them.
    """
    total, count = float(result.sums.sum()), int(result.counts.sum())
    text, full = windows.text, int(windows.scored.sum())
    whole = text if text is not None and count == len(text.tokens) else None
    return {
        **key,
        "data_name": name,
        "sum": total,
        "count": count,
        "full_count": full,
        "coverage": count / (full if text is None else len(text.tokens)),
        "tokens_hash": windows.digest(result.numbers),
        "loss": total / count,
        "perplexity": _exp(total / count),
        "words": whole and whole.words,
        "bytes": whole and whole.bytes,
        "perplexity_per_word": whole and _exp(total / max(1, whole.words)),
        "perplexity_per_byte": whole and _exp(total / max(1, whole.bytes)),
        **_accuracies(result, count),
        "seconds": round(result.seconds, 3),
        "tokens_per_second": round(count / result.seconds, 1),
        "peak_memory_mb": round(peak_megabytes(), 1),
    }


def _serves(row: dict[str, Any] | None, key: dict[str, Any]) -> bool:
    """Whether a row is what is asked for: of the same targets, and whole or of the same budget."""
    if row is None or row.get("longest") != key["longest"]:
        return False
    budgets = ("budget_seconds", "budget_tokens")
    whole = row["count"] == row.get("full_count", row["count"])
    return whole or all(row[name] == key[name] for name in budgets)


def _accuracies(result: Measurement, count: int) -> dict[str, float]:
    """The share of targets ranked first, and of windows of which all are, where they were asked."""
    if result.hits is None or result.solved is None:
        return {}
    return {"accuracy": result.hits / count, "exact": result.solved / len(result.numbers)}


def _exp(loss: float) -> float | None:
    """None past the largest float, as where a text has hardly any white space to tell its words."""
    return math.exp(loss) if loss < 700 else None
