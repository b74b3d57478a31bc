import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc.config.errors import ConfigError
from posenc.data.token_array import TokenArray
from posenc.data.windows import TrainingWindows, block

END = 999


def _stream(tokens: int) -> TokenArray:
    """Tokens that are their own places."""
    return TokenArray(np.arange(tokens, dtype=np.uint16), 0, 0, 0, END)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 8), st.integers(1, 5))
def test_an_epoch_has_every_token_as_target_once(
    count: int, length: int, tail: int, epochs: int
) -> None:
    windows = TrainingWindows(_stream(count * length + tail % length), length, seed=3)
    assert windows.count == count
    for epoch in range(epochs):
        inputs, targets = windows.batch(epoch, count)
        assert sorted(targets.flatten().tolist()) == list(range(count * length))
        assert torch.equal(inputs, torch.where(targets == 0, END, targets - 1))
        assert torch.equal(targets[:, 0] % length, torch.zeros(count, dtype=torch.int64))


def test_the_order_depends_on_seed_and_number_alone() -> None:
    windows = TrainingWindows(_stream(70), 7, seed=1)
    whole = windows.batch(0, 24)
    for size in (1, 2, 3, 8):
        again = TrainingWindows(_stream(70), 7, seed=1)
        parts = [again.batch(step, size) for step in reversed(range(24 // size))]
        for side in (0, 1):
            assert torch.equal(torch.cat([part[side] for part in reversed(parts)]), whole[side])


def test_epochs_and_seeds_differ() -> None:
    orders = [
        tuple(TrainingWindows(_stream(50), 1, seed).batch(epoch, 50)[1].flatten().tolist())
        for seed in (1, 2)
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4


def test_the_order_is_this_one_for_ever() -> None:
    _, targets = TrainingWindows(_stream(10), 1, seed=1).batch(0, 20)
    first, second = targets.flatten().tolist()[:10], targets.flatten().tolist()[10:]
    assert first == [9, 2, 4, 7, 5, 0, 8, 6, 3, 1]
    assert second == [5, 6, 3, 0, 7, 2, 1, 4, 9, 8]


def test_batches_are_what_a_model_takes() -> None:
    inputs, targets = TrainingWindows(_stream(40), 5, seed=0).batch(1, 3)
    for side in (inputs, targets):
        assert side.shape == (3, 5)
        assert side.dtype == torch.int64
        assert side.is_contiguous()


def test_too_short_a_corpus_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train_length: 8 tokens .* has 7; give a shorter"):
        TrainingWindows(_stream(7), 8, seed=1)


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (0, 1), (3, 7), (9, 10), (0, 0)])
def test_blocks_predict_each_token_from_the_one_before(start: int, stop: int) -> None:
    inputs, targets = block(_stream(10), start, stop)
    assert targets.tolist() == list(range(start, stop))
    assert inputs.tolist() == [END, *range(9)][start:stop]
    assert inputs.dtype == targets.dtype == torch.int64
