"""Layers that share an encoding compute its bias once per training step; results do not change."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention import blocks
from posenc.attention.choice import kernel_function
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.fire import Fire
from posenc.encodings.interleave import Interleave
from posenc.encodings.kerple import KerpleLog
from posenc.encodings.untied import Untied
from posenc.encodings.window import Window
from posenc.model.transformer import Transformer, initialize

GEOMETRY = Geometry(width=32, heads=4, layers=4, train_length=40)
TOKENS = torch.randint(0, 50, (2, 40), generator=torch.Generator().manual_seed(0))
NUM_BLOCKS = 3
Make = Callable[[], Encoding]


@pytest.fixture(autouse=True)
def computed_biases(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Record the distances' shape in each call of FIRE's bias, and use blocks of 16 rows."""
    shapes: list[torch.Size] = []
    bias = Fire.bias

    def recorded_bias(self: Fire, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        shapes.append(distance.shape)
        return bias(self, head, distance, pos_q)

    monkeypatch.setattr(Fire, "bias", recorded_bias)
    monkeypatch.setattr(blocks, "ROW_LIMITS", (16, 16))
    return shapes


def fire() -> Encoding:
    torch.manual_seed(0)
    return Fire(GEOMETRY)


def fire_in_odd_layers() -> Encoding:
    torch.manual_seed(0)
    return Interleave(GEOMETRY, first=KerpleLog, second=Fire, every=2)


def untied_fire_in_a_window() -> Encoding:
    """A separate FIRE per layer; the window creates a new encoding object for every layer."""
    torch.manual_seed(0)
    return Window(GEOMETRY, inner=partial(Untied, inner=Fire), size=20)


def model_with(encoding: Encoding, kernel_name: str) -> Transformer:
    sizes = {"width": 32, "layers": 4, "heads": 4, "feed_forward": 64}
    model = Transformer(50, encoding, kernel_function(kernel_name), **sizes)
    initialize(model, 1)
    return model.double()


def losses_and_gradients(model: Transformer) -> list[Tensor]:
    """Return the loss and every gradient of two steps of gradient descent."""
    results = []
    for _ in range(2):
        loss = model.losses(TOKENS, TOKENS.flip(1)).mean()
        loss.backward()
        results.append(loss.detach())
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                results.append(parameter.grad.clone())
                parameter -= 0.5 * parameter.grad
                parameter.grad = None
    return results


@pytest.mark.parametrize("make", [fire, fire_in_odd_layers, untied_fire_in_a_window])
@pytest.mark.parametrize("budget", [blocks.SAVED_BUDGET, 0], ids=["saved", "recomputed"])
def test_training_steps_equal_those_of_the_reference(
    make: Make, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SAVED_BUDGET", budget)
    actual, expected = (
        losses_and_gradients(model_with(make(), name)) for name in ("blocks", "reference")
    )
    for result, exact in zip(actual, expected, strict=True):
        torch.testing.assert_close(result, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", [fire, fire_in_odd_layers])
def test_training_computes_a_bias_once_for_all_layers(
    make: Make, computed_biases: list[torch.Size]
) -> None:
    model = model_with(make(), "blocks")
    model.losses(TOKENS, TOKENS).mean().backward()
    assert len(computed_biases) == NUM_BLOCKS
    model.losses(TOKENS, TOKENS).mean().backward()
    assert len(computed_biases) == 2 * NUM_BLOCKS


def test_inference_caches_no_bias(computed_biases: list[torch.Size]) -> None:
    with torch.no_grad():
        model_with(fire(), "blocks").losses(TOKENS, TOKENS)
    assert len(computed_biases) == GEOMETRY.layers * NUM_BLOCKS


def test_biases_over_the_budget_are_recomputed_in_the_backward_pass(
    computed_biases: list[torch.Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SAVED_BUDGET", 4 * 40 * 40 - 1)
    model_with(fire(), "blocks").losses(TOKENS, TOKENS).mean().backward()
    assert len(computed_biases) == 2 * GEOMETRY.layers * NUM_BLOCKS
