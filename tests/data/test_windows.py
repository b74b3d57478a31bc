import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc.config.errors import ConfigError
from posenc.data.dataset import TokenArray
from posenc.data.tokenized import TrainingWindows

EOS = 999


def _token_array(count: int) -> TokenArray:
    """Tokens that equal their positions."""
    return TokenArray(np.arange(count, dtype=np.uint16), 0, 0, 0, EOS)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 8), st.integers(1, 5))
def test_an_epoch_has_every_token_of_the_full_windows_as_target_once(
    count: int, length: int, tail: int, epochs: int
) -> None:
    windows = TrainingWindows(_token_array(count * length + tail % length), length, seed=3)
    assert windows.num_windows == count
    for epoch in range(epochs):
        inputs, targets = windows.batch(epoch, count)
        assert sorted(targets.flatten().tolist()) == list(range(count * length))
        assert torch.equal(inputs, torch.where(targets == 0, EOS, targets - 1))
        assert torch.equal(targets[:, 0] % length, torch.zeros(count, dtype=torch.int64))


def test_the_order_is_a_function_of_seed_and_step() -> None:
    whole = TrainingWindows(_token_array(70), 7, seed=1).batch(0, 24)
    for size in (1, 2, 3, 8):
        windows = TrainingWindows(_token_array(70), 7, seed=1)
        parts = [windows.batch(step, size) for step in reversed(range(24 // size))]
        for side in (0, 1):
            assert torch.equal(torch.cat([part[side] for part in reversed(parts)]), whole[side])


def test_epochs_and_seeds_have_different_orders() -> None:
    orders = [
        tuple(TrainingWindows(_token_array(50), 1, seed).batch(epoch, 50)[1].flatten().tolist())
        for seed in (1, 2)
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4


def test_the_order_never_changes() -> None:
    _, targets = TrainingWindows(_token_array(10), 1, seed=1).batch(0, 20)
    first, second = targets.flatten().tolist()[:10], targets.flatten().tolist()[10:]
    assert first == [9, 2, 4, 7, 5, 0, 8, 6, 3, 1]
    assert second == [5, 6, 3, 0, 7, 2, 1, 4, 9, 8]


def test_batches_are_contiguous_integers() -> None:
    inputs, targets = TrainingWindows(_token_array(40), 5, seed=0).batch(1, 3)
    for side in (inputs, targets):
        assert side.shape == (3, 5)
        assert side.dtype == torch.int64
        assert side.is_contiguous()


def test_a_corpus_shorter_than_a_window_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"has 7 tokens.*train_length=8"):
        TrainingWindows(_token_array(7), 8, seed=1)


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (0, 1), (3, 7), (9, 10), (0, 0)])
def test_windows_predict_each_token_from_the_previous_one(start: int, stop: int) -> None:
    inputs, targets = _token_array(10).windows(np.array([start]), stop - start)
    assert targets.tolist() == [list(range(start, stop))]
    assert inputs.tolist() == [[EOS, *range(9)][start:stop]]
    assert inputs.dtype == targets.dtype == torch.int64
