"""Training on answers only: the loss of a step is the mean over its scored targets."""

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from posenc.config.steps import TrainingSteps
from posenc.data.dataset import IGNORE_INDEX
from posenc.data.tasks.passkey import Passkey
from posenc.data.tasks.task_data import TaskBatches
from posenc.training.batches import micro_batch_loader
from posenc.training.fit import build_module
from posenc.training.module import validation_loss

Configured = Callable[..., DictConfig]
TASK = Passkey(examples=1, vocab_size=23, filler_length=9, marker_length=2, key_length=5)


def loss_and_gradient(config: DictConfig, micro_batch_size: int) -> tuple[float, torch.Tensor]:
    """Loss and gradient of the first step, on 8 examples."""
    steps = TrainingSteps(total=1, sequences=8, micro_batch_size=micro_batch_size)
    module = build_module(config, 24, steps)
    losses = []
    for batch_idx, batch in enumerate(
        micro_batch_loader(TaskBatches(TASK, 24, "train", 1), steps, 0)
    ):
        loss = module.training_step(batch, batch_idx) / steps.accumulation_steps
        loss.backward()
        losses.append(loss.item())
    gradients = [parameter.grad for parameter in module.parameters()]
    return sum(losses), torch.cat([g.flatten() for g in gradients if g is not None])


def test_the_loss_of_a_step_does_not_depend_on_its_micro_batches(configured: Configured) -> None:
    config = configured()
    inputs, targets = TaskBatches(TASK, 24, "train", 1).batch(0, 8)
    model = build_module(config, 24, TrainingSteps(1, 8, 8)).model
    scored = targets != IGNORE_INDEX
    log_probabilities = model(inputs)[scored].log_softmax(-1)
    expected = -log_probabilities.gather(-1, targets[scored][:, None]).mean()
    expected.backward()
    expected_gradient = torch.cat(
        [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    )
    for micro_batch_size in (8, 2, 1):
        loss, gradient = loss_and_gradient(config, micro_batch_size)
        assert loss == pytest.approx(expected.item(), rel=1e-6)
        assert torch.allclose(gradient, expected_gradient, atol=1e-6)


def test_the_loss_on_text_is_bit_for_bit_the_plain_mean(configured: Configured) -> None:
    module = build_module(configured(), 50, TrainingSteps(1, 5, 5))
    tokens = torch.randint(0, 50, (5, 24), generator=torch.Generator().manual_seed(2))
    loss = module.training_step((tokens, tokens, 120.0), 0)
    mean = module.model.losses(tokens, tokens).mean()
    assert torch.equal(loss, mean)
    for actual, expected in zip(
        torch.autograd.grad(loss, list(module.parameters())),
        torch.autograd.grad(mean, list(module.parameters())),
        strict=True,
    ):
        assert torch.equal(actual, expected)


def test_validation_loss_is_the_mean_over_answers(configured: Configured) -> None:
    config = configured()
    model = build_module(config, 24, TrainingSteps(1, 7, 7)).model.double()
    inputs, targets = TaskBatches(TASK, 24, "validation").batch(0, 7)
    scored = targets != IGNORE_INDEX
    expected = -model(inputs)[scored].log_softmax(-1).gather(-1, targets[scored][:, None]).mean()
    loss = validation_loss(model, inputs, targets, batch_tokens=48, precision="float32")
    assert loss == pytest.approx(expected.item(), abs=1e-12)
