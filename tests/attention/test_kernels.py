"""CPU kernels equal the reference in outputs and gradients; the reference equals a loop."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from posenc.attention import (
    UnsupportedKernelError,
    blocks,
    fused_sdpa,
    key_bias,
    reference,
    toeplitz,
)
from posenc.attention.choice import choose, kernel_function
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox
from posenc.encodings.kerple import KerpleLog
from posenc.encodings.nope import NoPE
from posenc.encodings.rope import Rope
from posenc.encodings.sandwich import Sandwich
from posenc.encodings.sinks import Sinks
from posenc.encodings.spectra import geometric
from posenc.encodings.t5 import T5
from posenc.encodings.window import Window

Make = Callable[[Geometry], Encoding]
GEOMETRY = Geometry(width=32, heads=4, layers=1, train_length=16)


class Windowed(Alibi):
    def window(self) -> int:
        return 7


class SameInEveryHead(NoPE):
    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance.clamp(min=0).sqrt()


class Content(NoPE):
    """A penalty per token, summed between key and query."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        gates = -x.mean(dim=-1).square().cumsum(dim=1)[:, None]
        rows = gates[:, :, -q.shape[2] :, None]
        return (rows - gates[:, :, None, :]).expand(-1, 4, -1, -1)


class ValueBias(T5):
    """Adds the sum of the weights times sin(distance) to every channel of the output."""

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor:
        return (weights * distance.clamp(min=0).sin()).sum(-1, keepdim=True).expand(-1, -1, -1, 8)


class Widened(NoPE):
    """Returns queries and keys from `rotate` that are wider than the values."""

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        cosine = pos.to(q.dtype)[:, None].cos()
        return torch.cat([q, q * cosine], dim=-1), torch.cat([k, k * cosine], dim=-1)


class WidenedAlibi(Widened, Alibi):
    """Has a bias, and queries and keys that are wider than the values."""


ENCODINGS = [NoPE, Alibi, T5, Windowed, SameInEveryHead, Content, ValueBias, Widened]


def inputs(length: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(2, 4, length, 8, generator=generator).to(dtype) for _ in range(3))
    x = torch.randn(2, length, 32, generator=generator).to(dtype)
    return [tensor.requires_grad_() for tensor in (x, q, k, v)]


def run(name: str, encoding: Encoding, length: int, dtype: torch.dtype) -> list[Tensor]:
    """Return the kernel's output and the gradients of inputs and parameters."""
    x, q, k, v = inputs(length, dtype)
    pos = torch.arange(length)
    rotated = encoding.rotate(x, q, k, pos)
    out = kernel_function(name)(encoding, x, *rotated, v, pos)
    weights = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
    leaves = [q, k, v, *encoding.parameters()] + ([x] if isinstance(encoding, Content) else [])
    return [out, *torch.autograd.grad((out * weights).sum(), leaves)]


@torch.no_grad()
@pytest.mark.parametrize("positions", ["tokens", "coordinates"])
@pytest.mark.parametrize("make", [Alibi, Fire, SameInEveryHead, WidenedAlibi])
def test_evaluation_in_blocks_equals_the_reference_without_a_copy_of_the_bias(
    make: Make, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROW_LIMITS", (16, 16))
    encoding, length = make(GEOMETRY), 53
    x, q, k, v = inputs(length, torch.float32)
    pos = torch.arange(length)
    q, k = encoding.rotate(x, q, k, pos)
    if positions == "coordinates":
        pos = torch.stack([pos // 8, pos % 8], dim=-1).expand(2, -1, -1)
    expected = reference.attend(encoding, x, q, k, v, pos)
    blocks_without_copy: list[slice] = []
    attend_without_copy = blocks.attend_without_copy

    def recorded(encoding: Encoding, inputs: reference.AttentionInputs, rows: slice) -> Tensor:
        blocks_without_copy.append(rows)
        return attend_without_copy(encoding, inputs, rows)

    monkeypatch.setattr(blocks, "attend_without_copy", recorded)
    torch.testing.assert_close(blocks.attend(encoding, x, q, k, v, pos), expected)
    assert len(blocks_without_copy) == 3  # all blocks but the first


def assert_equal_to_reference(
    name: str, encoding: Encoding, length: int, dtype: torch.dtype, tolerance: float
) -> None:
    """Compare outputs and gradients, relative to the largest entry if that is above 1."""
    results = zip(
        run("reference", encoding, length, dtype), run(name, encoding, length, dtype), strict=True
    )
    for expected, result in results:
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(result, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("make", ENCODINGS)
@pytest.mark.parametrize("length", [1, 17, 300])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_auto_equals_the_reference(
    make: type[Encoding], length: int, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    assert_equal_to_reference("auto", make(GEOMETRY).to(dtype), length, dtype, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_causal_attention_with_a_sink_equals_the_reference(
    dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    encoding = Sinks(GEOMETRY, inner=partial(Rope, spectrum=geometric), logit=0.5).to(dtype)
    assert choose(encoding, torch.device("cpu"), dtype, torch.arange(17)).name == "toeplitz"
    assert_equal_to_reference("causal", encoding, 17, dtype, tolerance)


@pytest.mark.parametrize("make", [Alibi, T5, Windowed])
def test_small_recomputed_blocks_equal_a_single_block(
    make: type[Encoding], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    encoding = make(GEOMETRY).double()
    single_block = run("blocks", encoding, 100, torch.float64)
    monkeypatch.setattr(blocks, "ROW_LIMITS", (16, 16))
    monkeypatch.setattr(blocks, "SAVED_BUDGET", 0)
    for expected, result in zip(
        single_block, run("blocks", encoding, 100, torch.float64), strict=True
    ):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("make", [NoPE, Alibi, T5, partial(Window, inner=NoPE, size=7)])
def test_blocks_equal_the_reference_in_bfloat16(make: Make) -> None:
    """Biases are in float32; so is the mask of a window without a bias, the same for all heads."""
    torch.manual_seed(0)
    assert_equal_to_reference("blocks", make(GEOMETRY), 40, torch.bfloat16, 2e-2)


@pytest.mark.parametrize("make", [Alibi, T5, Windowed, Content])
def test_without_private_operators_results_are_the_same(
    make: type[Encoding], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version of PyTorch may lack these operators."""
    monkeypatch.setattr(fused_sdpa, "CPU_ATTENTION", None)
    monkeypatch.setattr(fused_sdpa, "CPU_ATTENTION_BACKWARD", None)
    for name in ("auto", "blocks"):
        torch.manual_seed(0)
        assert_equal_to_reference(name, make(GEOMETRY).double(), 300, torch.float64, 1e-12)


def test_the_reference_equals_a_loop() -> None:
    """A loop over heads, rows and channels of one sequence, with a window and a bias."""
    encoding = Windowed(GEOMETRY)
    x, q, k, v = (tensor.detach() for tensor in inputs(11, torch.float64))
    out = reference.attend(encoding, x, q, k, v, torch.arange(11))
    for h in range(4):
        slope = 2.0 ** (-2 * (h + 1))
        for i in range(11):
            visible = range(max(0, i - 6), i + 1)
            scores = [
                sum(a * b for a, b in zip(q[0, h, i].tolist(), k[0, h, j].tolist(), strict=True))
                / math.sqrt(8)
                - slope * (i - j)
                for j in visible
            ]
            total = sum(math.exp(s) for s in scores)
            for c in range(8):
                expected = sum(
                    math.exp(s) / total * v[0, h, j, c].item()
                    for s, j in zip(scores, visible, strict=True)
                )
                assert out[0, h, i, c].item() == pytest.approx(expected, abs=1e-12)


def test_bfloat16_is_close_to_the_float64_reference() -> None:
    """Queries, keys and values are bfloat16; biases and softmax are float32."""
    encoding = Alibi(GEOMETRY)
    exact = run("reference", encoding, 300, torch.float64)[0]
    out = run("auto", encoding, 300, torch.bfloat16)[0]
    assert out.dtype == torch.bfloat16
    assert (out.double() - exact).abs().max() < 0.05


def test_coordinates_give_euclidean_distances() -> None:
    """Rows and columns of an image: ALiBi's penalty is proportional to the Euclidean distance."""
    encoding = Alibi(GEOMETRY)
    x, q, k, v = (tensor.detach() for tensor in inputs(6, torch.float64))
    pos = torch.stack(
        [torch.arange(6).div(3, rounding_mode="floor"), torch.arange(6) % 3], dim=-1
    ).expand(2, 6, 2)
    out = reference.attend(encoding, x, q, k, v, pos)
    slope = 2.0**-2
    scores = torch.stack(
        [
            q[0, 0, 5] @ k[0, 0, j] / math.sqrt(8)
            - slope * math.dist(pos[0, 5].tolist(), pos[0, j].tolist())
            for j in range(6)
        ]
    )
    torch.testing.assert_close(out[0, 0, 5], scores.softmax(0) @ v[0, 0], rtol=0, atol=1e-12)


TOEPLITZ_ENCODINGS: list[Make] = [
    Alibi,
    partial(Alibi, trainable=True),
    T5,
    KerpleLog,
    Sandwich,
    Windowed,
]


class BiasByParity(Encoding):
    """A bias that depends on whether the position of the query is even."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance * (1 + pos_q % 2)


@pytest.mark.parametrize("length", range(2, 10))
def test_a_bias_that_depends_on_the_query_is_not_taken_for_toeplitz(length: int) -> None:
    encoding = BiasByParity(GEOMETRY)
    assert toeplitz.bias_by_distance(encoding, torch.float32, torch.arange(length)) is None


@pytest.mark.parametrize("make", TOEPLITZ_ENCODINGS)
@pytest.mark.parametrize("length", [1, 7, 64, 256, 300, 700])
def test_toeplitz_equals_the_reference(make: Make, length: int) -> None:
    """Lengths below, at and above the block sizes of the forward and backward passes."""
    torch.manual_seed(0)
    encoding = make(GEOMETRY).double()
    assert_equal_to_reference("toeplitz", encoding, length, torch.float64, 1e-12)


@pytest.mark.parametrize(
    ("name", "make"),
    [*(("toeplitz", make) for make in TOEPLITZ_ENCODINGS), ("blocks", T5), ("blocks", Fox)],
)
@settings(max_examples=8, deadline=None)
@given(length=st.integers(2, 1100))
@example(length=2)
@example(length=257)
def test_float32_is_precise_at_any_length(
    name: str, make: Make, length: int, assert_precise: Callable[[str, Make, Tensor], None]
) -> None:
    assert_precise(name, make, torch.arange(length))


@pytest.mark.parametrize("length", [2, 7, 300, 1030])
def test_a_bias_per_key_in_bfloat16_is_as_precise_as_toeplitz(
    length: int, layer_results: Callable[[str, Encoding, Tensor, torch.dtype], list[Tensor]]
) -> None:
    geometry, pos = Geometry(width=24, heads=3, layers=1, train_length=16), torch.arange(length)
    exact = layer_results("reference", Alibi(geometry), pos, torch.float64)

    def errors(name: str) -> list[float]:
        results = layer_results(name, Alibi(geometry), pos, torch.bfloat16)
        return [float((a - b).abs().max()) for a, b in zip(results, exact, strict=True)]

    pairs = zip(errors("key_bias"), errors("toeplitz"), strict=True)
    assert all(error <= 1.5 * other for error, other in pairs)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (partial(Alibi, trainable=True), "learnable"),
        (T5, "learnable"),
        (Sandwich, "not proportional"),
    ],
)
def test_a_bias_per_key_must_be_fixed_and_proportional_to_distance(make: Make, reason: str) -> None:
    x, q, k, v = inputs(40, torch.bfloat16)
    with pytest.raises(UnsupportedKernelError, match=reason):
        kernel_function("key_bias")(make(GEOMETRY), x, q, k, v, torch.arange(40))


def test_a_bias_per_key_must_not_exceed_the_maximum() -> None:
    distances = torch.arange(40.0)[None]
    assert key_bias.unsupported_bias_reason(-distances) is None
    reason = key_bias.unsupported_bias_reason(-distances * key_bias.MAX_BIAS)
    assert reason is not None and "exceeds" in reason


def test_a_toeplitz_view_is_a_block_of_the_bias() -> None:
    """The fused kernel reads an overlapping view of the bias, not a copy."""
    bias = torch.randn(2, 20)
    view = toeplitz.toeplitz_view(bias, slice(0, 9))
    assert view.shape == (1, 2, 12, 9) and view.data_ptr() == bias.data_ptr()
    for u in range(12):
        assert torch.equal(view[0, :, u], bias[:, u : u + 9])
    grad = torch.randn(2, 12, 9, dtype=torch.float64)
    expected = torch.zeros(2, 20, dtype=torch.float64)
    for u in range(12):
        expected[:, u : u + 9] += grad[:, u]
    torch.testing.assert_close(toeplitz.sum_by_entry(grad), expected)


def test_kernels_equal_the_reference_at_positions_with_gaps() -> None:
    x, q, k, v = inputs(9, torch.float64)
    pos = torch.arange(9) * 2
    expected = reference.attend(Alibi(GEOMETRY), x, q, k, v, pos)
    for name in ("auto", "blocks", "factored"):
        torch.testing.assert_close(
            kernel_function(name)(Alibi(GEOMETRY), x, q, k, v, pos), expected
        )
