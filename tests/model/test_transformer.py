"""The model: paired initialization, exact losses, and the effect of its parameters."""

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.model import loss
from posenc.model.build import build_model

Configured = Callable[..., DictConfig]


def test_models_that_differ_only_in_encoding_start_from_the_same_weights(
    configured: Configured,
) -> None:
    states = [
        build_model(configured(f"encoding={name}"), 50).state_dict()
        for name in ("nope", "t5", "learned", "rope")
    ]
    for state in states[1:]:
        for key, weight in states[0].items():
            assert torch.equal(state[key], weight), key


def test_the_seed_changes_every_random_weight(configured: Configured) -> None:
    first, second = (build_model(configured("encoding=t5", f"seed={s}"), 50) for s in (1, 2))
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert a.ndim < 2 or not torch.equal(a, b), name


def test_weights_do_not_depend_on_the_global_random_state(configured: Configured) -> None:
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(build_model(configured("encoding=t5", "model.bias=true"), 50).state_dict())
    for name, weight in states[0].items():
        assert torch.equal(weight, states[1][name]), name


def test_losses_in_chunks_equal_losses_without_chunks(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(configured(), 50).double()
    tokens, targets = torch.randint(0, 50, (2, 3, 24)).unbind(0)

    def losses_and_gradients() -> tuple[torch.Tensor, list[torch.Tensor]]:
        losses = model.losses(tokens, targets)
        return losses, list(torch.autograd.grad(losses.sum(), list(model.parameters())))

    losses, gradients = losses_and_gradients()
    monkeypatch.setattr(loss, "LOGITS_BUDGET", 50 * 7)
    chunked, chunked_gradients = losses_and_gradients()
    torch.testing.assert_close(chunked, losses, rtol=0, atol=1e-12)
    for a, b in zip(gradients, chunked_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_losses_are_the_negative_log_likelihood(configured: Configured) -> None:
    model = build_model(configured(), 50).double()
    tokens, targets = torch.randint(0, 50, (2, 3, 24)).unbind(0)
    likelihood = model(tokens).softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(model.losses(tokens, targets), -likelihood.log())


@pytest.mark.parametrize(
    "change",
    [
        "model.norm=rms_norm",
        "model.activation=relu",
        "model.activation=silu",
        "model.activation=swiglu",
        "model.tied=false",
        "model.embedding_scale=1",
        "model.bias=true",
    ],
)
def test_an_option_changes_the_output_or_the_number_of_parameters(
    configured: Configured, change: str
) -> None:
    tokens = torch.randint(0, 50, (1, 24))
    plain, other = build_model(configured(), 50), build_model(configured(change), 50)
    changed = other.parameter_count() != plain.parameter_count()
    assert changed or not torch.equal(plain(tokens), other(tokens))


def test_dropout_acts_only_in_training(configured: Configured) -> None:
    tokens = torch.randint(0, 50, (1, 24))
    plain, other = build_model(configured(), 50), build_model(configured("model.dropout=0.5"), 50)
    assert not torch.equal(other(tokens), plain(tokens))
    assert torch.equal(other.eval()(tokens), plain.eval()(tokens))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.heads=3"], "heads=3 does not divide width=32"),
        (["model.heads=32", "encoding=rope"], "even number of channels"),
        (["encoding=learned", "encoding.max_length=5"], "max_length=5 is below train_length=24"),
        (["encoding=rope", "encoding.layout=diagonal"], "encoding.layout='diagonal'"),
        (["model.width=wide"], "model.width"),
    ],
)
def test_an_invalid_model_is_refused(
    configured: Configured, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(configured(*overrides), 50)
