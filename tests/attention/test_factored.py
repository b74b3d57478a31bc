"""`factored` is precise at any length, and at positions with gaps and offsets."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from posenc.attention import factored_blocks, reference
from posenc.attention.choice import kernel_function
from posenc.attention.factored import attend_with_extra_columns
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cable import Cable
from posenc.encodings.fox import Fox
from posenc.encodings.grape_a import GrapeA
from posenc.encodings.nope import NoPE
from posenc.encodings.sandwich import Sandwich

GEOMETRY = Geometry(width=24, heads=3, layers=1, train_length=16)
Make = Callable[[Geometry], Encoding]
AssertPrecise = Callable[[str, Make, Tensor], None]
LayerResults = Callable[[str, Encoding, Tensor, torch.dtype], list[Tensor]]
MORE_GATES: list[Make] = [
    partial(Fox, initial_bias=5.0),
    partial(Cable, weighted=False),
    partial(Fox, gate="forget", initial_bias=2.0),
    *(partial(GrapeA, gate=gate) for gate in ("key", "query")),
]
GATES = [
    *(Fox, Cable, partial(GrapeA, gate="both")),
    *(pytest.param(make, marks=pytest.mark.slow) for make in MORE_GATES),
]
lengths = st.integers(1, 1100)


def make_id(make: Make) -> str:
    return getattr(make, "__name__", repr(getattr(make, "keywords", make)))


@pytest.mark.parametrize("make", GATES, ids=make_id)
@settings(max_examples=6, deadline=None)
@given(length=lengths)
@example(length=1026)
@example(length=770)
@example(length=512)
def test_gates_are_precise_at_any_length(
    make: Make, length: int, assert_precise: AssertPrecise
) -> None:
    assert_precise("factored", make, torch.arange(length))


@pytest.mark.slow
@pytest.mark.parametrize("make", [Fox, Cable, GrapeA])
def test_gates_are_precise_at_2050_tokens(make: Make, assert_precise: AssertPrecise) -> None:
    assert_precise("factored", make, torch.arange(2050))


@pytest.mark.parametrize("make", [partial(Alibi, trainable=True), Sandwich, GrapeA], ids=make_id)
@settings(max_examples=3, deadline=None)
@given(length=lengths, gap=st.integers(1, 2000), offset=st.integers(0, 200_000))
@example(length=770, gap=13, offset=0)
@example(length=10, gap=1, offset=90_000)
@example(length=922, gap=642, offset=0)
def test_results_are_precise_at_positions_with_gaps_and_offsets(
    make: Make, length: int, gap: int, offset: int, assert_precise: AssertPrecise
) -> None:
    generator = torch.Generator().manual_seed(length)
    steps = torch.randint(1, gap + 1, (length,), generator=generator)
    assert_precise("factored", make, offset + steps.cumsum(0))


@pytest.mark.parametrize("make", [*GATES, partial(Alibi, trainable=True), Sandwich], ids=make_id)
@pytest.mark.parametrize("length", [1, 63, 64, 65, 257, 400])
def test_float64_results_equal_the_reference(
    make: Make, length: int, layer_results: LayerResults
) -> None:
    torch.manual_seed(0)
    encoding, pos = make(GEOMETRY), torch.arange(length)
    actual, exact = (
        layer_results(name, encoding, pos, torch.float64) for name in ("factored", "reference")
    )
    for result, expected in zip(actual, exact, strict=True):
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("make", [Fox, Cable, partial(Alibi, trainable=True)], ids=make_id)
def test_bfloat16_errors_do_not_accumulate_over_tokens(make: Make) -> None:
    """The gradients of gates are sums over many tokens."""
    torch.manual_seed(0)
    pos, generator = torch.arange(700), torch.Generator().manual_seed(1)
    encoding, exact = make(GEOMETRY), make(GEOMETRY).double()
    exact.load_state_dict(encoding.state_dict())
    x = torch.randn(1, 700, 24, generator=generator)
    q, k, v, weights = torch.randn(4, 1, 3, 700, 8, generator=generator).bfloat16().unbind(0)
    out = kernel_function("factored")(encoding, x, q, k, v, pos)
    expected = reference.attend(exact, x.double(), q.double(), k.double(), v.double(), pos)
    assert (out.double() - expected).abs().max() < 2**-7 * expected.abs().max()
    grads = torch.autograd.grad((out.float() * weights).sum(), list(encoding.parameters()))
    exact_grads = torch.autograd.grad((expected * weights).sum(), list(exact.parameters()))
    largest = max(grad.abs().max() for grad in exact_grads)
    for grad, exact_grad in zip(grads, exact_grads, strict=True):
        assert (grad.double() - exact_grad).abs().max() < 0.02 * largest


class Increasing(NoPE):
    """A bias that grows with distance, so that the farthest keys have the largest weights."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return 0.05 * distance + 0 * head

    def bias_factors(
        self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        return None, -0.05 * pos.double()[None, None, :, None].expand(1, 3, -1, -1)


def test_a_bias_that_grows_with_distance_is_precise(layer_results: LayerResults) -> None:
    encoding, pos = Increasing(GEOMETRY), torch.arange(300)
    exact, *exact_grads = layer_results("reference", encoding, pos, torch.float64)
    out, *grads = layer_results("factored", encoding, pos, torch.float32)
    assert (out - exact).abs().max() < 5e-6
    for grad, exact_grad in zip(grads, exact_grads, strict=True):
        assert (grad - exact_grad).abs().max() < 2e-5 * exact_grad.abs().max()


class Wave(NoPE):
    """A bias that rises and falls with distance, by more than the weight threshold."""

    amplitude = 300

    def wave(self, pos: Tensor) -> Tensor:
        return self.amplitude * (pos.double() / 60).sin()

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return self.wave(pos_q - distance) - self.wave(pos_q) + 0 * head

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[None, Tensor]:
        return None, self.wave(pos)[None, None, :, None].expand(1, 3, -1, -1)


@pytest.mark.parametrize("length", [255, 257, 700])
def test_a_bias_that_rises_and_falls_with_distance_is_precise(
    length: int, layer_results: LayerResults
) -> None:
    encoding, pos = Wave(GEOMETRY), torch.arange(length)
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
        exact = layer_results("reference", encoding, pos, torch.float64)
        actual = layer_results("factored", encoding, pos, dtype)
        for result, expected in zip(actual, exact, strict=True):
            assert (result - expected).abs().max() < tolerance * expected.abs().max()


def test_large_scores_are_not_cut_off_by_the_weight_threshold() -> None:
    """A far key with a large score keeps its weight, however low its bias."""
    encoding, pos = Alibi(GEOMETRY), torch.arange(300)
    generator = torch.Generator().manual_seed(2)
    q, k, v = torch.randn(3, 1, 3, 300, 8, generator=generator).double().unbind(0)
    q[:, :, 299], k[:, :, 0] = 40.0, 40.0  # a score of 4525, a bias of -75
    x = torch.zeros(1, 300, 24).double()
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        expected = reference.attend(encoding, x, q, k, v, pos)
        x_, q_, k_, v_ = (tensor.to(dtype) for tensor in (x, q, k, v))
        out = kernel_function("factored")(encoding, x_, q_, k_, v_, pos)
        assert (expected[0, :, 299] - v[0, :, 0]).abs().max() < 1e-9
        assert (out[:, :, 299] - expected[:, :, 299]).abs().max() < tolerance


@pytest.mark.parametrize("make", [Alibi, Fox, Cable, Sandwich, GrapeA], ids=make_id)
@torch.no_grad()
def test_extra_columns_equal_the_reference_up_to_bfloat16_rounding(make: Make) -> None:
    torch.manual_seed(0)
    encoding, pos, generator = make(GEOMETRY), torch.arange(600), torch.Generator().manual_seed(3)
    x = torch.randn(1, 600, 24, generator=generator)
    q, k, v = torch.randn(3, 1, 3, 600, 8, generator=generator).bfloat16().unbind(0)
    factors = encoding.bias_factors(x, q, k, pos)
    assert factors is not None
    query, key = (None if f is None else f.expand(1, 3, 600, -1) for f in factors)
    assert key is not None
    out = attend_with_extra_columns(q, k, v, query, key).double()
    x, q, k, v = (tensor.double() for tensor in (x, q, k, v))
    expected = reference.attend(encoding.double(), x, q, k, v, pos)
    assert (out - expected).abs().max() < 2**-8 * expected.abs().max()


def test_triangles_and_rectangles_cover_each_pair_once() -> None:
    length = 11 * factored_blocks.TRIANGLE_ROWS
    covered = torch.zeros(length, length)
    for block in factored_blocks.row_blocks(length):
        for start in range(block.start, block.stop, factored_blocks.TRIANGLE_ROWS):
            triangle = slice(start, start + factored_blocks.TRIANGLE_ROWS)
            covered[triangle, triangle] += 1
        for rows, keys in factored_blocks.rectangles(block):
            covered[rows, keys] += 1
    assert torch.equal(covered.tril(), torch.ones(length, length).tril())
