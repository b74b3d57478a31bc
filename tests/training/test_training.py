"""Schedules, optimizer groups, checkpoints, the validation loss and mixed precision."""

import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from torch import nn

from compositions import composer
from posenc.config.errors import ConfigError, RunError
from posenc.data.dataset import TokenArray
from posenc.data.tokenized import evenly_spaced_windows
from posenc.jobs.job_config import compose_job
from posenc.jobs.validate import validate
from posenc.model.build import build_model
from posenc.training.checkpoint import (
    find_weights,
    latest_checkpoint,
    list_checkpoints,
    save_checkpoint,
    save_weights,
)
from posenc.training.module import LanguageModel, validation_loss
from posenc.training.optimizer import adamw
from posenc.training.schedule import constant, cosine

Configured = Callable[..., DictConfig]


def test_cosine_warms_up_then_falls_to_its_minimum() -> None:
    factors = [cosine(step, 100, warmup_fraction=0.1, min_lr_ratio=0.2) for step in range(101)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1.0
    assert factors[55] == pytest.approx(0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi / 2)))
    assert factors[100] == pytest.approx(0.2)
    assert factors[10:] == sorted(factors[10:], reverse=True)


def test_constant_warms_up_then_stays_constant() -> None:
    assert [constant(step, 10, warmup_fraction=0.2) for step in range(4)] == [0.5, 1.0, 1.0, 1.0]


def test_weight_decay_applies_to_matrices_only() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    optimizer = adamw(model, learning_rate=1e-3, betas=[0.9, 0.95], weight_decay=0.1)
    decayed = [group["weight_decay"] for group in optimizer.param_groups for _ in group["params"]]
    ndims = [p.ndim for group in optimizer.param_groups for p in group["params"]]
    assert sorted(zip(ndims, decayed, strict=True)) == [(1, 0.0)] * 3 + [(2, 0.1)]


@pytest.mark.parametrize("override", ["optimizer.betas=[0.9]", "optimizer.weight_decay=-0.1"])
def test_invalid_betas_or_weight_decay_give_the_same_message_for_adamw_and_muon(
    small_job: list[str], override: str
) -> None:
    messages = []
    for name in ("adamw", "muon"):
        with pytest.raises(ConfigError) as raised:
            validate(compose_job([*small_job, f"optimizer={name}", override], composer()))
        messages.append(str(raised.value))
    assert messages[0] == messages[1] and override.removeprefix("optimizer.") in messages[0]


def checkpoint_writer(value: float) -> Callable[[Path], None]:
    """Return a function that saves a checkpoint with one weight of this value."""
    return lambda path: torch.save({"state_dict": {"model.w": torch.tensor(value)}}, path)


def test_a_checkpoint_that_is_deleted_during_listing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = save_checkpoint(tmp_path, 5, checkpoint_writer(5))
    deleted = kept.path.with_name(kept.path.name.replace("5-", "6-"))
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter([kept.path, deleted]))
    assert list_checkpoints(tmp_path) == [kept]


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, step, checkpoint_writer(step))
    assert [checkpoint.step for checkpoint in list_checkpoints(tmp_path)] == [15, 10]
    newest = latest_checkpoint(tmp_path)
    assert newest is not None and newest.weights()["w"].item() == 15.0


def test_a_failed_write_leaves_existing_checkpoints(tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path, 5, checkpoint_writer(5))

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        save_checkpoint(tmp_path, 10, fail)
    assert list(tmp_path.iterdir()) == [saved.path]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_corrupt_checkpoint_is_logged_and_skipped(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (5, 10):
        save_checkpoint(tmp_path, step, checkpoint_writer(step))
    newest = list_checkpoints(tmp_path)[0].path
    data = newest.read_bytes()
    flipped = data[:100] + bytes([data[100] ^ 1]) + data[101:]
    newest.write_bytes({"cut": data[:-10], "flip": flipped, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None and checkpoint.step == 5
    assert newest.name in caplog.text


def test_a_checkpoint_that_was_renamed_to_another_step_is_an_error(tmp_path: Path) -> None:
    """The digest in its name still matches its contents."""
    contents = {"state_dict": {}, "global_step": 5}
    saved = save_weights(tmp_path, 5, lambda path: torch.save(contents, path))
    assert saved.load() == contents
    saved.path.rename(tmp_path / saved.path.name.replace("000000005", "000000010"))
    renamed = find_weights(tmp_path, 10)
    assert renamed is not None and renamed.is_intact()
    with pytest.raises(RunError, match="saved after step 5 and has been renamed"):
        renamed.load()


def test_loading_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (print, ("code was run",))

    saved = save_checkpoint(tmp_path, 1, lambda path: torch.save({"x": Evil()}, path))
    with pytest.raises(Exception, match="Weights only load failed"):
        saved.weights()


def random_tokens(count: int) -> TokenArray:
    tokens = torch.randint(0, 50, (count,), generator=torch.Generator().manual_seed(4))
    return TokenArray(tokens.numpy().astype("uint16"), words=1, bytes=1, documents=1, eos_id=0)


def test_validation_loss_is_the_mean_over_its_windows(configured: Configured) -> None:
    model = build_model(configured(), 50).double()
    array = random_tokens(200)
    tokens = [0, *array.tokens.astype(int).tolist()]
    inputs = torch.tensor([tokens[n * 24 : n * 24 + 24] for n in range(8)])
    targets = torch.tensor([tokens[n * 24 + 1 : n * 24 + 25] for n in range(8)])
    expected = model.losses(inputs, targets).mean().item()
    windows = evenly_spaced_windows(array, 24, 10_000)
    loss = validation_loss(model, *windows, batch_tokens=72, precision="float32")
    assert loss == pytest.approx(expected, abs=1e-12)
    assert model.training


def test_bf16_keeps_weights_and_losses_in_float32(configured: Configured) -> None:
    model = build_model(configured("encoding=t5"), 50)
    tokens = torch.randint(0, 50, (2, 24))
    float32_losses = model.losses(tokens, tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = model.losses(tokens, tokens)
    losses.mean().backward()
    assert losses.dtype == torch.float32
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    assert not torch.equal(losses, float32_losses)
    assert (losses - float32_losses).abs().max() < 0.3


def test_dropout_is_a_function_of_seed_and_batch(configured: Configured) -> None:
    model = build_model(configured("model.dropout=0.5"), 50)
    tokens = torch.randint(0, 50, (2, 24))
    module = LanguageModel(model, lambda m: torch.optim.SGD(m.parameters()), lambda *_: 1.0, 1, 7)

    def loss(batch_idx: int, seed: int = 7) -> float:
        module.seed = seed
        module.on_train_batch_start((tokens, tokens, 48), batch_idx)
        return module.training_step((tokens, tokens, 48), batch_idx).item()

    assert loss(3) == loss(3) != loss(4)
    assert loss(3, seed=8) not in (loss(3), loss(4))
