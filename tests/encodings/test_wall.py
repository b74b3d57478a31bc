"""Wall attention, compared with products of gates and with its authors' code."""

import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc.attention import reference
from posenc.attention.choice import attend
from posenc.encodings.base import Geometry
from posenc.encodings.wall import MAX_DIRECT_TOKENS, Wall

LAYER = 1


def build(initial_bias: float = 2.0, heads: int = 2, width: int = 3) -> Wall:
    torch.manual_seed(6)
    geometry = Geometry(width=heads * width, heads=heads, layers=2, train_length=9)
    encoding = Wall(geometry, initial_bias=initial_bias).double()
    encoding.weight.data = torch.randn(encoding.weight.shape, dtype=torch.float64)
    return encoding


def inputs(encoding: Wall, length: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    geometry = encoding.geometry
    x = torch.randn(2, length, geometry.width, generator=generator, dtype=torch.float64)
    size = (2, 2, geometry.heads, length, geometry.head_dim)
    q, k = torch.randn(size, generator=generator, dtype=torch.float64).unbind(0)
    return x, q, k


def bias_of(encoding: Wall, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    pos = torch.arange(k.shape[2])
    pos_q = pos[-q.shape[2] :, None]
    layer = encoding.at_layer(LAYER)
    return layer.content_bias(x, q, k, (pos_q - pos).to(q.dtype), pos_q)


def test_scores_are_sums_over_channels_of_products_of_gates() -> None:
    encoding, length = build(), 71
    x, q, k = inputs(encoding, length)
    scores = bias_of(encoding, x, q, k) + q @ k.mT / math.sqrt(3)
    for b, h, i, j in [
        (0, 0, 0, 0),
        (1, 1, 5, 2),
        (0, 1, MAX_DIRECT_TOKENS, 3),
        (1, 0, 70, 31),
        (1, 1, 70, 64),
    ]:
        total = 0.0
        for c in range(3):
            kept = 1.0
            for t in range(j + 1, i + 1):
                logit = encoding.weight[LAYER, h, c] @ x[b, t] + encoding.gate_bias[LAYER, h, c]
                kept /= 1 + math.exp(-logit.item())
            total += q[b, h, i, c].item() * k[b, h, j, c].item() * kept
        assert scores[b, h, i, j].item() == pytest.approx(total / math.sqrt(3), abs=1e-12)


@pytest.fixture
def authors_attention(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """Return the reference in PyTorch from its file, because the package imports Triton."""
    package = find_spec("fla")
    assert package is not None and package.origin is not None

    def cumsum(gates: Tensor, scale: float, **_: Any) -> Tensor:
        return gates.cumsum(1) * scale

    file = Path(package.origin).parent / "ops" / "wall_attn" / "naive.py"
    constants = SimpleNamespace(RCP_LN2=1 / math.log(2))
    monkeypatch.setitem(sys.modules, "fla.ops.utils.constant", constants)
    functions = SimpleNamespace(chunk_global_cumsum=cumsum)
    monkeypatch.setitem(sys.modules, "fla.ops.utils.cumsum", functions)
    return run_path(str(file))["naive_wall_attn"]


@pytest.mark.parametrize("length", [MAX_DIRECT_TOKENS - 1, MAX_DIRECT_TOKENS + 1, 101])
def test_attention_equals_the_authors_reference(
    length: int, authors_attention: Callable[..., Tensor]
) -> None:
    encoding = build()
    x, q, k = inputs(encoding, length)
    layer = encoding.at_layer(LAYER)
    ours = reference.attend(layer, x, q, k, k.sin(), torch.arange(length))
    logits = torch.einsum("btw,hcw->bthc", x, encoding.weight[LAYER]) + encoding.gate_bias[LAYER]
    gates = torch.nn.functional.logsigmoid(logits)
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    theirs = authors_attention(q, k, k.sin(), gates, scale=3**-0.5)
    torch.testing.assert_close(ours.float(), theirs.transpose(1, 2), rtol=0, atol=1e-5)


def test_blocks_equal_the_reference() -> None:
    encoding = build()
    x, q, k = inputs(encoding, 301)
    layer, pos = encoding.at_layer(LAYER), torch.arange(301)
    blocks = attend("auto", layer, x, q, k, k.sin(), pos)
    whole = reference.attend(layer, x, q, k, k.sin(), pos)
    torch.testing.assert_close(blocks, whole, rtol=0, atol=1e-11)


@pytest.mark.parametrize("initial_bias", [-20.0, 0.0, 8.0])
def test_float32_equals_float64_over_any_range_of_gates(initial_bias: float) -> None:
    """With a bias of -20, cumulative sums reach -18,000, where exponentials underflow."""
    encoding, length = build(initial_bias), 901
    x, q, k = inputs(encoding, length)
    exact = bias_of(encoding, x, q[:, :, -70:], k).tril(length - 70)
    in_float32 = encoding.float()
    actual = bias_of(in_float32, x.float(), q[:, :, -70:].float(), k.float())
    assert actual.dtype == torch.float32 and actual.isfinite().all()
    torch.testing.assert_close(
        actual.tril(length - 70).double(), exact, rtol=0, atol=3e-5 if initial_bias else 1e-4
    )
    actual.sum().backward()
    for parameter in in_float32.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()


def test_open_gates_give_no_bias_and_the_initial_gates_are_nearly_open() -> None:
    encoding = build(initial_bias=60.0)
    x, q, k = inputs(encoding, 40)
    assert bias_of(encoding, x, q, k).tril().abs().max() < 1e-12
    geometry = Geometry(width=8, heads=2, layers=2, train_length=9)
    gates = torch.nn.functional.logsigmoid(Wall(geometry).gate_bias.double())
    assert gates.flatten().tolist() == pytest.approx([-0.000335406] * 16, rel=1e-5)
