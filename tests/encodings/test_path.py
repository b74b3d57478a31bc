"""PaTH, compared with products of matrices and with its authors' reference."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path as FilePath
from runpy import run_path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from posenc.attention import reference
from posenc.attention.choice import attend
from posenc.encodings.base import Geometry
from posenc.encodings.path import CHUNK_SIZE, Path, path_products
from posenc.encodings.window import Window

LAYER = 1


def build(forget_gate: bool = False, heads: int = 2, width: int = 6, conv_width: int = 3) -> Path:
    torch.manual_seed(6)
    geometry = Geometry(width=heads * width, heads=heads, layers=2, train_length=9)
    encoding = Path(geometry, rank=4, conv_width=conv_width, forget_gate=forget_gate).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    return encoding


def inputs(encoding: Path, length: int, batch: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    geometry = encoding.geometry
    x = torch.randn(batch, length, geometry.width, generator=generator, dtype=torch.float64)
    size = (2, batch, geometry.heads, length, geometry.head_dim)
    q, k = torch.randn(size, generator=generator, dtype=torch.float64).unbind(0)
    return x, q, k


def test_scores_match_golden_values() -> None:
    """In two dimensions; in reversed order, the two transformations would give -0.25."""
    diagonal = 0.5**0.5
    w = torch.tensor([[9, 9], [1, 0], [diagonal, diagonal]], dtype=torch.float64)[None, None]
    beta = torch.tensor([[7], [1], [1.5]], dtype=torch.float64)
    q = torch.tensor([[3, 1]], dtype=torch.float64)[None, None]
    k = torch.tensor([[1, 2], [1, 2], [1, 2]], dtype=torch.float64)[None, None]
    scores = path_products(q, k, w, beta * w)
    assert scores.flatten().tolist() == pytest.approx([-4, -4, 5], abs=1e-12)


@pytest.mark.parametrize("forget_gate", [False, True])
def test_scores_are_products_of_matrices_between_key_and_query(forget_gate: bool) -> None:
    encoding, length = build(forget_gate), CHUNK_SIZE + 7
    x, q, k = inputs(encoding, length)
    layer, pos = encoding.at_layer(LAYER), torch.arange(length)
    bias = layer.content_bias(x, q, k, pos[:, None] - pos, pos[:, None])
    projected = (encoding.up[LAYER] @ encoding.down[LAYER] @ x[0].T)[None]
    convolved = conv1d(pad(projected, (2, 0)), encoding.kernel[LAYER][:, None], groups=12)[0]
    w = (convolved * convolved.sigmoid()).view(2, 6, length).mT
    w = w / (w.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    logits = encoding.weight[LAYER] @ x[0].T + encoding.offset[LAYER][:, None]
    beta = 2 / (1 + (-logits).exp())
    for h, i in [(0, 0), (1, 5), (0, CHUNK_SIZE - 1), (1, CHUNK_SIZE), (0, CHUNK_SIZE + 6)]:
        row = q[0, h, i]
        for j in range(i, -1, -1):
            gates = torch.zeros(())
            if encoding.gates is not None:
                gate_logits = encoding.gates.weight[LAYER, h] @ x[0, j + 1 : i + 1].T
                gates = (gate_logits + encoding.gates.offset[LAYER, h]).sigmoid().log().sum()
            expected = (row @ k[0, h, j] + gates - q[0, h, i] @ k[0, h, j]) * 6**-0.5
            torch.testing.assert_close(bias[0, h, i, j], expected, rtol=0, atol=1e-11)
            row = row @ (torch.eye(6).double() - beta[h, j] * torch.outer(w[h, j], w[h, j]))


@pytest.fixture
def authors_attention() -> Callable[..., Tensor]:
    """Return the reference in PyTorch from its file, because the package imports Triton."""
    package = find_spec("fla")
    assert package is not None and package.origin is not None
    file = FilePath(package.origin).parent / "ops" / "path_attn" / "naive.py"
    return run_path(str(file))["naive_path_attn"]


@pytest.mark.parametrize("forget_gate", [False, True])
@pytest.mark.parametrize("length", [CHUNK_SIZE, 2 * CHUNK_SIZE + 5])
def test_attention_equals_the_authors_reference(
    length: int, forget_gate: bool, authors_attention: Callable[..., Tensor]
) -> None:
    encoding = build(forget_gate)
    x, q, k = inputs(encoding, length, batch=2)
    layer = encoding.at_layer(LAYER)
    assert isinstance(layer, Path)
    gates = torch.zeros(2, length, 2).double()
    if encoding.gates is not None:
        logits = x @ encoding.gates.weight[LAYER].T + encoding.gates.offset[LAYER]
        gates = torch.nn.functional.logsigmoid(logits)
    ours = reference.attend(layer, x, q, k, k.sin(), torch.arange(length))
    w, beta = layer.directions(x), layer.betas(x)[..., 0]
    tensors = [tensor.transpose(1, 2) for tensor in (q, k, k.sin(), w, beta)]
    theirs = authors_attention(*tensors, gates, scale=6**-0.5)
    torch.testing.assert_close(ours.transpose(1, 2), theirs, rtol=0, atol=1e-5)


def test_blocks_equal_the_reference() -> None:
    encoding = build(forget_gate=True)
    x, q, k = inputs(encoding, 301)
    layer, pos = encoding.at_layer(LAYER), torch.arange(301)
    blocks = attend("auto", layer, x, q, k, k.sin(), pos)
    whole = reference.attend(layer, x, q, k, k.sin(), pos)
    torch.testing.assert_close(blocks, whole, rtol=0, atol=1e-11)


@pytest.mark.parametrize("conv_width", [1, 3, 6])
def test_blocks_equal_the_reference_in_a_window(conv_width: int) -> None:
    encoding = build(forget_gate=True, conv_width=conv_width)
    windowed = Window(encoding.geometry, inner=lambda _: encoding, size=5).at_layer(LAYER)
    x, q, k = inputs(encoding, 301)
    blocks = attend("blocks", windowed, x, q, k, k.sin(), torch.arange(301))
    whole = reference.attend(windowed, x, q, k, k.sin(), torch.arange(301))
    torch.testing.assert_close(blocks, whole, rtol=0, atol=1e-11)


def test_a_second_reflection_undoes_the_first() -> None:
    """With beta = 2, H is orthogonal and its own inverse."""
    generator = torch.Generator().manual_seed(1)
    q, k, w = torch.randn(3, 1, 1, 3, 4, generator=generator, dtype=torch.float64).unbind(0)
    w = (w / w.norm(dim=-1, keepdim=True))[:, :, [0, 1, 1]]
    scores = path_products(q, k, w, 2 * w)
    torch.testing.assert_close(scores[0, 0, 2, 0], q[0, 0, 2] @ k[0, 0, 0])
