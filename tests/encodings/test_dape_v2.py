"""DAPE V2, compared with PyTorch's convolutions over a longer sequence, as in the authors' code."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.dape import Dape
from posenc.encodings.dape_v2 import DapeV2
from posenc.encodings.kerple import KerpleLog
from posenc.encodings.window import Window

LAYER, LENGTH, ROWS, WIDTH = 1, 17, 5, 4


def geometry(heads: int) -> Geometry:
    return Geometry(width=heads * WIDTH, heads=heads, layers=2, train_length=7)


def random_queries_and_keys(heads: int, length: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(heads)
    q, k = torch.randn(2, 2, heads, length, WIDTH, generator=generator).double().unbind(0)
    return q, k


def bias_of(encoding: Encoding, q: Tensor, k: Tensor, rows: slice) -> Tensor:
    """Return the bias [B, H, R, K] of the queries in `rows` and the keys up to the last query."""
    pos = torch.arange(rows.stop)
    distance = (pos[rows, None] - pos).to(q.dtype)
    k, x = k[:, :, : rows.stop], q.new_zeros(2, rows.stop, 1)
    bias = encoding.content_bias(x, q[:, :, rows], k, distance, pos[rows, None])
    assert bias is not None
    return bias


def conv(weight: Tensor, offset: Tensor, kernel_size: int) -> nn.Conv2d:
    """Return one layer of the MLP as a convolution, zero-padded at both ends of the sequence."""
    channels = weight.shape[1] // kernel_size
    layer = nn.Conv2d(channels, len(weight), (1, kernel_size), padding=(0, kernel_size // 2))
    layer.weight.data, layer.bias = weight.detach().view(layer.weight.shape), nn.Parameter(offset)
    return layer


@pytest.mark.parametrize(
    ("heads", "mlp_width", "kernel_size", "inner"),
    [(2, 8, 3, Alibi), (3, 5, 5, KerpleLog), (1, 4, 9, Alibi), (2, 3, 1, KerpleLog)],
)
@torch.no_grad()
def test_dape_v2_equals_the_authors_convolutions_before_the_end_of_a_sequence(
    heads: int, mlp_width: int, kernel_size: int, inner: Callable[[Geometry], Encoding]
) -> None:
    torch.manual_seed(heads)
    all_layers = DapeV2(geometry(heads), inner=inner, mlp_width=mlp_width, kernel_size=kernel_size)
    encoding = all_layers.double().at_layer(LAYER)
    q, k = random_queries_and_keys(heads, LENGTH + kernel_size // 2)
    pos = torch.arange(q.shape[2])
    distance = (pos[:, None] - pos).double().clamp(min=0)
    head = torch.arange(heads)[:, None, None]
    static = all_layers.static_encoding(LAYER).bias(head, distance, pos[:, None])
    assert static is not None
    inputs = torch.cat([q @ k.mT / math.sqrt(WIDTH), static.expand(2, -1, -1, -1)], dim=1).tril()
    network = nn.Sequential(
        conv(all_layers.first_weight[LAYER], all_layers.first_offset[LAYER], kernel_size),
        nn.LeakyReLU(),
        conv(all_layers.second_weight[LAYER], all_layers.second_offset[LAYER], kernel_size),
    )
    expected = (static + network(inputs))[:, :, :LENGTH, :LENGTH].tril()
    for rows in (slice(0, LENGTH), slice(LENGTH - ROWS, LENGTH), slice(3, 9)):
        actual = bias_of(encoding, q, k, rows).tril(rows.start)
        torch.testing.assert_close(actual, expected[:, :, rows, : rows.stop], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_kernel_of_one_key_equals_dape() -> None:
    torch.manual_seed(0)
    v1 = Dape(geometry(3), inner=KerpleLog).double()
    v2 = DapeV2(geometry(3), inner=KerpleLog, kernel_size=1).double()
    v2.load_state_dict(v1.state_dict())
    q, k = random_queries_and_keys(3, LENGTH)
    actual, expected = (
        bias_of(version.at_layer(LAYER), q, k, slice(0, LENGTH)).tril() for version in (v1, v2)
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [None, 7])
def test_blocks_and_float32_match_the_reference_at_an_odd_length(
    size: int | None, assert_blocks_match: Callable[..., None]
) -> None:
    inner = partial(DapeV2, inner=Alibi, kernel_size=5)
    all_layers = inner(geometry(2)) if size is None else Window(geometry(2), inner=inner, size=size)
    encoding = all_layers.double().at_layer(LAYER)
    q, k = random_queries_and_keys(2, 301)
    x = torch.zeros(2, 301, 8, dtype=torch.float64)
    assert_blocks_match(encoding, x, q, k, q)


def test_weights_start_like_those_of_convolutions_and_even_kernels_are_rejected() -> None:
    torch.manual_seed(0)
    encoding = DapeV2(geometry(8), inner=Alibi)
    layers = nn.Conv2d(16, 32, (1, 3)), nn.Conv2d(32, 8, (1, 3))
    weights = encoding.first_weight, encoding.second_weight
    for layer, weight in zip(layers, weights, strict=True):
        assert weight[0].numel() == layer.weight.numel()
        assert weight.abs().max().item() == pytest.approx(layer.weight.abs().max().item(), rel=0.02)
    for kernel_size in (0, 2):
        with pytest.raises(ValueError, match=f"kernel_size={kernel_size}"):
            DapeV2(geometry(2), inner=Alibi, kernel_size=kernel_size)
