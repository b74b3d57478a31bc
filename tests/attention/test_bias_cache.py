"""A bias that all layers have is formed once for a forward pass, and nothing else changes."""

from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention import blocks
from posenc.attention.choice import kernel
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.fire import Fire
from posenc.encodings.interleave import Interleave
from posenc.encodings.kerple import KerpleLog
from posenc.encodings.untied import Untied
from posenc.encodings.window import Window
from posenc.model.transformer import Transformer, initialise

GEOMETRY = Geometry(width=32, heads=4, layers=4, train_length=40)
TOKENS = torch.randint(0, 50, (2, 40), generator=torch.Generator().manual_seed(0))
BLOCKS = 3


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the distances that FIRE forms biases of; blocks have 16 rows."""
    shapes: list[tuple[int, ...]] = []
    plain = Fire.bias

    def bias(self: Fire, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        shapes.append(tuple(distance.shape))
        return plain(self, head, distance, pos_q)

    monkeypatch.setattr(Fire, "bias", bias)
    monkeypatch.setattr(blocks, "ROWS", (16, 16))
    return shapes


def fire() -> Encoding:
    torch.manual_seed(0)
    return Fire(GEOMETRY)


def every_other() -> Encoding:
    torch.manual_seed(0)
    return Interleave(GEOMETRY, first=KerpleLog, second=Fire, every=2)


def model_of(encoding: Encoding, name: str) -> Transformer:
    sizes = {"width": 32, "layers": 4, "heads": 4, "feed_forward": 64}
    model = Transformer(50, encoding, kernel(name), **sizes)
    initialise(model, 1)
    return model.double()


def two_steps(model: Transformer) -> list[Tensor]:
    """The loss and every gradient of two steps, the second with other weights."""
    found = []
    for _ in range(2):
        loss = model.losses(TOKENS, TOKENS.flip(1)).mean()
        loss.backward()
        found.append(loss.detach())
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                found.append(parameter.grad.clone())
                parameter -= 0.5 * parameter.grad
                parameter.grad = None
    return found


def of_its_own() -> Encoding:
    """Another FIRE in every layer, seen through views that live for a layer each."""
    torch.manual_seed(0)
    return Window(GEOMETRY, inner=partial(Untied, inner=Fire), size=20)


@pytest.mark.parametrize("make", [fire, every_other, of_its_own])
@pytest.mark.parametrize("budget", [blocks.SAVED_BUDGET, 0], ids=["kept", "formed again"])
def test_steps_are_those_of_the_reference(make, budget, monkeypatch):
    monkeypatch.setattr(blocks, "SAVED_BUDGET", budget)
    found, expected = (two_steps(model_of(make(), name)) for name in ("blocks", "reference"))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", [fire, every_other])
def test_in_training_it_is_formed_once_for_all_layers(make, asked):
    model = model_of(make(), "blocks")
    model.losses(TOKENS, TOKENS).mean().backward()
    assert len(asked) == BLOCKS
    model.losses(TOKENS, TOKENS).mean().backward()
    assert len(asked) == 2 * BLOCKS


def test_where_nothing_is_trained_nothing_is_kept(asked):
    with torch.no_grad():
        model_of(fire(), "blocks").losses(TOKENS, TOKENS)
    assert len(asked) == GEOMETRY.layers * BLOCKS


def test_what_would_take_too_much_is_formed_again(asked, monkeypatch):
    monkeypatch.setattr(blocks, "SAVED_BUDGET", 4 * 40 * 40 - 1)
    model_of(fire(), "blocks").losses(TOKENS, TOKENS).mean().backward()
    assert len(asked) == 2 * GEOMETRY.layers * BLOCKS
