"""Models that start with zero output projections."""

import math
from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from posenc.model.build import build_model

Configured = Callable[..., DictConfig]


@pytest.mark.parametrize("encoding", ["nope", "rope", "alibi", "sinusoidal"])
def test_the_initial_loss_of_an_untied_model_is_that_of_a_uniform_prediction(
    configured: Configured, encoding: str
) -> None:
    config = configured(f"encoding={encoding}", "model.tied=false", "model.zero_init=true")
    tokens = torch.arange(24)[None]
    losses = build_model(config, 100).losses(tokens, tokens + 1)
    torch.testing.assert_close(losses, torch.full((1, 24), math.log(100)))


def test_blocks_start_as_the_identity(configured: Configured) -> None:
    model = build_model(configured("encoding=rope", "model.zero_init=true"), 100)
    tokens = torch.arange(24)[None]
    expected = model.norm(model.embedding(tokens) * model.embedding_scale)
    torch.testing.assert_close(model.hidden_states(tokens), expected)


def test_other_weights_do_not_depend_on_zero_init(configured: Configured) -> None:
    plain = dict(build_model(configured(), 100).named_parameters())
    for name, parameter in build_model(configured("model.zero_init=true"), 100).named_parameters():
        if name.endswith(".out.weight"):
            assert not parameter.any()
        else:
            assert torch.equal(parameter, plain[name])
