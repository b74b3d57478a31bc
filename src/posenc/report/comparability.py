"""Checks that samples are comparable: from the same training data and the same scored tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from posenc.evaluation.protocols import NONOVERLAPPING_PROTOCOLS
from posenc.report.claim_sides import Ngram
from posenc.report.outcome import NoVerdictError
from posenc.report.run_samples import Sample

CORPUS_KEYS = ("data", "split")
TOKEN_KEYS = ("count", "tokens_hash")
WINDOW_KEYS = ("protocol", "stride")


def check_comparable(left: Sequence[Sample], right: Sequence[Sample]) -> None:
    """Raise NoVerdictError unless the samples of two sides can be compared; `right` may be empty.

    Within each side, all samples of a change or trend must be comparable with the first one. Then
    the sides are checked sample by sample. Sides that are changes or trends may score different
    tokens if their protocols differ, because each change or trend is measured within its own side.
    """
    for first, *others in filter(None, (left, right)):
        for other in others:
            _check_pair(first, other)
    for a, b in zip(left, right, strict=False):
        is_change_or_trend = len(left) > 1
        _check_pair(
            a,
            b,
            tokens_may_differ=is_change_or_trend and _differ(a.row, b.row, WINDOW_KEYS) is not None,
        )


def ngram_loss(ngram: Ngram, sample: Sample) -> float:
    """Return the loss of the n-gram model of a run's training tokens on the text of a sample.

    Raises NoVerdictError if the run has no such n-gram model, if the model was scored on another
    text, or if the sample is from before the end of training. An n-gram model scores every token,
    so a sample from non-overlapping windows must have the same token count.
    """
    run, row = sample.run, sample.row or {}
    if row.get("at_tokens") is not None:
        raise NoVerdictError(
            "not comparable",
            f"{ngram} was trained on all {run.config['tokens']} training tokens of {run.name}, not"
            f" on the first {row['at_tokens']}; compare it at the end of training",
        )
    rows = [r for r in run.ngrams if ngram.order in (None, r["order"])]
    if not rows:
        orders = ", ".join(str(r["order"]) for r in run.ngrams) or "none"
        raise NoVerdictError(
            "not measured",
            f"{run.name} has no row for {ngram} in ngrams.json (orders: {orders}); train it with a"
            " sufficient ngram_order",
        )
    same_text = [r for r in rows if _differ(r, row, CORPUS_KEYS) is None]
    if not same_text:
        key = _differ(rows[0], row, CORPUS_KEYS) or "data"
        raise NoVerdictError(
            "not comparable",
            f"{ngram} was scored on different text from {run.name}"
            f" ({key} {_short(rows[0][key])} and {_short(row.get(key))})",
        )
    best = min(same_text, key=lambda r: r["loss"])
    if row["protocol"] in NONOVERLAPPING_PROTOCOLS and best["count"] != row["count"]:
        raise NoVerdictError(
            "not comparable",
            f"{ngram} was scored on {best['count']} tokens and {run.name} on {row['count']}",
        )
    return best["loss"]


def _check_pair(left: Sample, right: Sample, *, tokens_may_differ: bool = False) -> None:
    """Raise NoVerdictError if two samples differ in data or, unless `tokens_may_differ`, in tokens.

    Unless an evaluation budget ran out at either length, two lengths of the same run may score
    different tokens, because some protocols score only the end of each window.
    """
    if left.run is not right.run:
        a, b = (sample.run.config["planned"]["fingerprint"] for sample in (left, right))
        if a != b:
            raise NoVerdictError(
                "not comparable",
                f"the two sides were trained on different data ({_short(a)} and {_short(b)})",
            )
    if left.row is None or right.row is None:
        return
    complete = not (_budget_ran_out(left.row) or _budget_ran_out(right.row))
    tokens_may_differ = tokens_may_differ or (left.run is right.run and complete)
    key = _differ(
        left.row, right.row, CORPUS_KEYS if tokens_may_differ else CORPUS_KEYS + TOKEN_KEYS
    )
    if key is not None:
        a, b = left.row.get(key), right.row.get(key)
        raise NoVerdictError(
            "not comparable",
            f"the two sides were scored on different tokens ({key} {_short(a)} and {_short(b)})",
        )


def _differ(
    left: Mapping[str, Any] | None, right: Mapping[str, Any] | None, keys: Sequence[str]
) -> str | None:
    """Return the first of `keys` in which two rows differ, or None."""
    rows = left or {}, right or {}
    return next((key for key in keys if rows[0].get(key) != rows[1].get(key)), None)


def _short(value: Any) -> Any:
    """Return the first 12 digits of a hash, and other values unchanged."""
    return value[:12] if isinstance(value, str) else value


def _budget_ran_out(row: Mapping[str, Any]) -> bool:
    return row["count"] != row.get("full_count", row["count"])
