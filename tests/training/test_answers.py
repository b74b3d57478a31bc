"""Training on answers alone: the mean is over what a step scores, however it is cut."""

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from posenc.config.settings import Steps
from posenc.data.dataset import IGNORED
from posenc.data.tasks.examples import MixedExamples
from posenc.data.tasks.passkey import Passkey
from posenc.training.batches import loader
from posenc.training.fit import language_model
from posenc.training.validation import validation_loss

Configured = Callable[..., DictConfig]
TASK = Passkey(examples=1, vocabulary=23, filler=9, marker=2, key=5)


def gradient(config: DictConfig, micro: int) -> tuple[float, torch.Tensor]:
    """Loss and gradient of the first step of 8 examples, `micro` at a time."""
    steps = Steps(total=1, sequences=8, micro_sequences=micro)
    module = language_model(config, 24, steps)
    losses = []
    for number, batch in enumerate(loader(MixedExamples(TASK, 24, "train", 1), steps, 0)):
        loss = module.training_step(batch, number) / steps.accumulate
        loss.backward()
        losses.append(loss.item())
    gradients = [parameter.grad for parameter in module.parameters()]
    return sum(losses), torch.cat([g.flatten() for g in gradients if g is not None])


def test_a_step_is_the_mean_over_its_answers_however_it_is_cut(configured: Configured) -> None:
    config = configured()
    inputs, targets = MixedExamples(TASK, 24, "train", 1).batch(0, 8)
    model = language_model(config, 24, Steps(1, 8, 8)).model
    scored = targets != IGNORED
    logits = model(inputs)[scored].log_softmax(-1)
    wanted = -logits.gather(-1, targets[scored][:, None]).mean()
    wanted.backward()
    exact = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    for micro in (8, 2, 1):
        loss, found = gradient(config, micro)
        assert loss == pytest.approx(wanted.item(), rel=1e-6)
        assert torch.allclose(found, exact, atol=1e-6)


def test_text_is_trained_on_as_by_the_plain_mean(configured: Configured) -> None:
    """To the last bit, loss and gradients."""
    module = language_model(configured(), 50, Steps(1, 5, 5))
    tokens = torch.randint(0, 50, (5, 24), generator=torch.Generator().manual_seed(2))
    found = module.training_step((tokens, tokens, 120.0), 0)
    plain = module.model.losses(tokens, tokens).mean()
    assert torch.equal(found, plain)
    for one, other in zip(
        torch.autograd.grad(found, list(module.parameters())),
        torch.autograd.grad(plain, list(module.parameters())),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_validation_loss_is_the_mean_over_answers(configured: Configured) -> None:
    config = configured()
    model = language_model(config, 24, Steps(1, 7, 7)).model.double()
    inputs, targets = MixedExamples(TASK, 24, "validation").batch(0, 7)
    scored = targets != IGNORED
    wanted = -model(inputs)[scored].log_softmax(-1).gather(-1, targets[scored][:, None]).mean()
    found = validation_loss(model, inputs, targets, batch_tokens=48, precision="float32")
    assert found == pytest.approx(wanted.item(), abs=1e-12)
