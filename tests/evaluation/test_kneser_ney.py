"""Kneser-Ney probabilities equal an independent computation with dictionaries and sum to 1."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from posenc.evaluation.kneser_ney import KneserNey

VOCAB = 7


def interpolated(
    windows: list[list[int]], n: int, context: tuple[int, ...], word: int, max_order: int
) -> float:
    """Return p_n(word | context) from the formula; only order `max_order` uses raw counts."""
    if n == 0:
        return 1 / VOCAB
    lower = interpolated(windows, n - 1, context[1:], word, max_order)
    if len(context) < n - 1:
        return lower
    counts = ngram_counts(windows, n, continuation=n < max_order)
    followers = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == context}
    total = sum(followers.values())
    if total == 0:
        return lower
    singles = sum(count == 1 for count in counts.values())
    doubles = sum(count == 2 for count in counts.values())
    discount = singles / (singles + 2 * doubles) if singles else 0.5
    distinct = sum(count > 0 for count in followers.values())
    return (max(followers.get(word, 0) - discount, 0) + discount * distinct * lower) / total


def ngram_counts(
    windows: list[list[int]], n: int, *, continuation: bool
) -> Counter[tuple[int, ...]]:
    """Count n-grams or, for continuation counts, the distinct tokens before each n-gram."""
    counts: Counter[tuple[int, ...]] = Counter()
    before: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
    for window in windows:
        for start in range(len(window) - n + 1):
            gram = tuple(window[start : start + n])
            counts[gram] += 1
            if start:
                before[gram].add(window[start - 1])
    return Counter({gram: len(before[gram]) for gram in counts}) if continuation else counts


@pytest.fixture(scope="module")
def windows() -> np.ndarray:
    return np.random.default_rng(3).integers(0, VOCAB - 1, (30, 9)) ** 2 // 6


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_losses_equal_the_formula(windows: np.ndarray, order: int) -> None:
    model = KneserNey(windows, VOCAB, 4)
    text = np.random.default_rng(4).integers(0, VOCAB, 60)
    expected = [
        -math.log(
            interpolated(
                windows.tolist(),
                order,
                tuple([-1] * (order - 1 - i) + text[max(0, i - order + 1) : i].tolist()),
                int(word),
                order,
            )
        )
        for i, word in enumerate(text)
    ]
    np.testing.assert_allclose(model.losses(text, order), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_probabilities_of_all_tokens_sum_to_1(windows: np.ndarray, order: int) -> None:
    model = KneserNey(windows, VOCAB, 5)
    for seed in range(20):
        context = np.random.default_rng(seed).integers(0, VOCAB, order)
        texts = [np.append(context, word) for word in range(VOCAB)]
        total = sum(math.exp(-model.losses(text, order)[-1]) for text in texts)
        assert total == pytest.approx(1, abs=1e-12)


def test_more_context_helps_on_text_with_structure() -> None:
    text = np.tile([0, 1, 2, 0, 2, 1], 50)
    model = KneserNey(text[None], VOCAB, 3)
    losses = [model.losses(text, order).mean() for order in (1, 2, 3)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.1


def test_the_order_is_limited_by_the_windows() -> None:
    with pytest.raises(ValueError, match="max_order=10"):
        KneserNey(np.zeros((2, 9), dtype=np.int64), VOCAB, 10)
