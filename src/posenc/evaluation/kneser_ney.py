"""Interpolated Kneser-Ney n-gram models, a baseline for models trained on the same tokens.

Kneser & Ney 1995 in the interpolated form of Chen & Goodman 1999 (Computer Speech & Language 13,
section 4), with one discount per order. Let h be a context of n-1 tokens, and h' the same context
without its first token:

    p_n(w | h) = max(c(h w) - D_n, 0) / c(h) + D_n t(h) / c(h) * p_{n-1}(w | h')

c(h) is the sum of c(h w) over w and t(h) the number of w with c(h w) > 0. In the highest order,
c(h w) is the number of occurrences of h w; in the lower ones, it is the number of distinct tokens
that precede h w. D_n = n1 / (n1 + 2 n2), where n1 and n2 are the numbers of n-grams with a count of
1 and 2; D_n is 1/2 if n1 is 0. p_0 is 1 / vocabulary size. If c(h) is 0, as after a context that
does not occur in training, p_n(w | h) is p_{n-1}(w | h').
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _NGramTable:
    """The m n-grams of one order. The id of an n-gram is its index in `keys` [m], which are sorted.

    A key is the id of the first n-1 tokens, which are an (n-1)-gram, times the vocabulary size,
    plus the last token.
    """

    keys: Ints
    context: Ints
    """The ids [m] of the (n-1)-grams that consist of all tokens but the last."""
    suffix: Ints
    """The ids [m] of the (n-1)-grams that consist of all tokens but the first."""
    occurrences: Ints


class KneserNey:
    """Models of orders 1 to `max_order` trained on windows of tokens [W, T].

    n-grams do not cross window boundaries.
    """

    def __init__(self, windows: Ints, vocab_size: int, max_order: int) -> None:
        if max_order < 1 or windows.shape[1] < max_order:
            raise ValueError(
                f"max_order={max_order} must be from 1 to the length of a window,"
                f" {windows.shape[1]} tokens"
            )
        self.vocab_size = vocab_size
        self._tables = _count_ngrams(windows, vocab_size, max_order)

    @property
    def max_order(self) -> int:
        return len(self._tables)

    def losses(self, tokens: Ints, order: int) -> Floats:
        """Return the negative log-likelihood [N] in nats of each token, given those before it.

        The first `order` - 1 tokens are predicted with the highest order that fits their context.
        """
        counts = [self._discounted_counts(n, n == order) for n in range(1, order + 1)]
        p = np.full(len(tokens), 1.0 / self.vocab_size)
        contexts = np.zeros(len(tokens), dtype=np.int64)  # ids of the contexts; -1 if unseen
        for (numerators, totals, backoff), table in zip(counts, self._tables, strict=False):
            ngrams = _ngram_ids(table, contexts, tokens, self.vocab_size)
            seen = np.flatnonzero(contexts >= 0)
            seen = seen[totals[contexts[seen]] > 0]
            seen_contexts = contexts[seen]
            discounted = np.where(ngrams[seen] >= 0, numerators[ngrams[seen]], 0.0)
            p[seen] = (discounted + backoff[seen_contexts] * p[seen]) / totals[seen_contexts]
            contexts = np.concatenate(([-1], ngrams[:-1]))
        return -np.log(p)

    def _discounted_counts(self, n: int, highest: bool) -> tuple[Floats, Floats, Floats]:
        """Return max(c - D, 0) for each n-gram, and c(h) and D t(h) for each context."""
        table = self._tables[n - 1]
        if highest:
            count = table.occurrences
        else:
            longer = self._tables[n]
            count = np.bincount(longer.suffix, minlength=len(table.keys))
        ones, twos = int((count == 1).sum()), int((count == 2).sum())
        discount = ones / (ones + 2 * twos) if ones else 0.5
        contexts = len(self._tables[n - 2].keys) if n > 1 else 1
        totals = np.bincount(table.context, weights=count, minlength=contexts)
        types = np.bincount(table.context, weights=count > 0, minlength=contexts)
        numerators: Floats = np.maximum(count - discount, 0.0).astype(np.float64)
        return numerators, totals.astype(np.float64), discount * types.astype(np.float64)


def _count_ngrams(windows: Ints, vocab_size: int, max_order: int) -> list[_NGramTable]:
    """Return the n-grams of all orders in windows [W, T]."""
    tables: list[_NGramTable] = []
    ids = np.zeros((len(windows), windows.shape[1] + 1), dtype=np.int64)
    for n in range(1, max_order + 1):
        # ids[:, i] is the id of the (n-1)-gram that ends before token n - 1 + i.
        context, suffix = ids[:, :-1], ids[:, 1:]
        key = context * vocab_size + windows[:, n - 1 :]
        keys, first, inverse, occurrences = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        tables.append(_NGramTable(keys, keys // vocab_size, suffix.ravel()[first], occurrences))
        ids = inverse.reshape(key.shape)
    return tables


def _ngram_ids(table: _NGramTable, contexts: Ints, tokens: Ints, vocab_size: int) -> Ints:
    """Return the id of the n-gram of each context and token, -1 if it does not occur."""
    keys = contexts * vocab_size + tokens
    ranks = np.minimum(np.searchsorted(table.keys, keys), len(table.keys) - 1)
    return np.where((contexts >= 0) & (table.keys[ranks] == keys), ranks, -1)
