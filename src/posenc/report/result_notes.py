"""The notes below a result table, which explain its values, intervals and marks."""

from collections.abc import Sequence

from posenc.report.bootstrap import DESCRIPTION
from posenc.report.claim import CONFIDENCE, MIN_SEEDS
from posenc.report.curve_set import PERPLEXITY, DisplayedQuantity
from posenc.report.result_rows import ResultRow, incomparable_lengths
from posenc.report.scale import exp

BEST_NOTE = (
    "Marked: the best value of each column, and every value not statistically distinguishable"
    f" from it because the {CONFIDENCE:.0%} interval of their difference, paired by seed,"
    " includes 0 ({methods})."
)
NO_METHOD = "there are too few seeds for intervals"
INCOMPARABLE_NOTE = (
    "The values at {lengths} tokens were scored on different tokens and cannot be compared; none of"
    " them is marked. Evaluate all of them with the same evaluation.budget_tokens."
)
SEEDS_NOTE = (
    f"±: half the width of the {CONFIDENCE:.0%} t interval over seeds, which does not cover the"
    " choice of the text."
)
TEXT_NOTE = (
    "Another text of the same kind and size would shift all values of a column together: their"
    f" {CONFIDENCE:.0%} intervals over {{covers}} range from {{low:+.1%}} to {{high:+.1%}}"
    f" ({DESCRIPTION}). This shift cancels in the difference of two values of a column."
)
EARLY_NOTE = (
    "S: slope of the least-squares fit loss = a + S / T over all lengths T from L on, in nats per"
    " window. Early tokens: the fraction of the gain from L to the longest length that is explained"
    " by fewer tokens with little context; above 100%, context beyond L makes the loss worse."
)
FIXED_NOTE = (
    "Rows with fixed targets score the same tokens at every length, so only the context changes."
    " Their best values are marked separately."
)

NGRAM_NOTE = (
    "n-gram models: interpolated Kneser-Ney models of the tokens that the runs trained on. They"
    " predict every token of the same text from those before it, whatever the window length."
)


def incomparable_note(rows: Sequence[ResultRow]) -> list[str]:
    """Return a note on the lengths at which the rows scored different tokens, if there are any."""
    lengths = ", ".join(map(str, incomparable_lengths(rows)))
    return [INCOMPARABLE_NOTE.format(lengths=lengths)] if lengths else []


def value_notes(quantity: DisplayedQuantity, rows: Sequence[ResultRow]) -> list[str]:
    """Return the notes on the values, their intervals and the marks."""
    values = [value for row in rows for value in row.values.values()]
    methods = dict.fromkeys(value.difference.method for value in values if value.difference)
    notes = [quantity.note, BEST_NOTE.replace("{methods}", "; ".join(methods) or NO_METHOD)]
    notes += incomparable_note(rows)
    if any(len(value.point.seeds) >= MIN_SEEDS for value in values):
        notes.append(SEEDS_NOTE)
    intervals = [interval for value in values if (interval := value.point.text_interval)]
    if intervals and quantity is PERPLEXITY:
        low = min(exp(interval.low - interval.mean) for interval in intervals) - 1
        high = max(exp(interval.high - interval.mean) for interval in intervals) - 1
        covers = " or ".join(sorted({interval.covers for interval in intervals}))
        notes.append(TEXT_NOTE.format(covers=covers, low=low, high=high))
    return notes
