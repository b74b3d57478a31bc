"""Sinks and visible first tokens, compared with sums over the visible keys."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention import reference
from posenc.attention.causal import attention_with_sink_key
from posenc.attention.choice import kernel_function
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.fox import Fox
from posenc.encodings.nope import NoPE
from posenc.encodings.shaw import Shaw
from posenc.encodings.sinks import Sinks
from posenc.encodings.stick_breaking import StickBreaking
from posenc.encodings.window import Window

HEADS, WIDTH, LAYER = 3, 8, 1
GEOMETRY = Geometry(width=HEADS * WIDTH, heads=HEADS, layers=2, train_length=16)
LOGITS = torch.tensor([[9.0, 9.0, 9.0], [-1.25, 0.5, 30.0]])
Make = Callable[[Geometry], Encoding]
ALIBI_SLOPES = (2**-4, 2**-8, 2**-2)
WINDOW = partial(Window, inner=Alibi, size=7)
STREAMING = partial(WINDOW, start_size=3)


def inputs(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Return x [1, T, D] and q, k, v [1, H, T, d]."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(1, length, GEOMETRY.width, generator=generator)
    q, k, v = torch.randn(3, 1, HEADS, length, WIDTH, generator=generator).to(dtype).unbind(0)
    return x.to(dtype), q, k, v


def with_logits(inner: Make, dtype: torch.dtype = torch.float64) -> Encoding:
    """Return the layer of Sinks whose logits are the second row of LOGITS."""
    torch.manual_seed(0)
    encoding = Sinks(GEOMETRY, inner=inner).to(dtype)
    encoding.logits.data.copy_(LOGITS)
    return encoding.at_layer(LAYER)


def attention_by_loop(
    is_visible: Callable[[int, int], bool],
    slopes: tuple[float, ...],
    logits: list[float],
    length: int,
) -> Tensor:
    """Return attention's output [H, T, d], with sums of Python floats as denominators."""
    _, q, k, v = inputs(length)
    out = torch.zeros(HEADS, length, WIDTH, dtype=torch.float64)
    for h in range(HEADS):
        for i in range(length):
            keys = [j for j in range(i + 1) if is_visible(i, j)]
            scores = [
                (q[0, h, i] @ k[0, h, j]).item() / math.sqrt(WIDTH) - slopes[h] * (i - j)
                for j in keys
            ]
            total = sum(map(math.exp, scores)) + math.exp(logits[h])
            for j, score in zip(keys, scores, strict=True):
                out[h, i] += math.exp(score) / total * v[0, h, j]
    return out


@pytest.mark.parametrize("kernel", ["reference", "auto", "blocks"])
@pytest.mark.parametrize(
    ("inner", "is_visible", "slopes"),
    [
        (NoPE, lambda i, j: True, (0, 0, 0)),
        (Alibi, lambda i, j: True, ALIBI_SLOPES),
        (WINDOW, lambda i, j: i - j < 7, ALIBI_SLOPES),
        (STREAMING, lambda i, j: i - j < 7 or j < 3, ALIBI_SLOPES),
    ],
    ids=["nope", "alibi", "window", "streaming_llm"],
)
def test_the_logit_is_a_term_of_the_softmaxs_denominator(
    inner: Make, is_visible: Callable[[int, int], bool], slopes: tuple[float, ...], kernel: str
) -> None:
    length = 19
    x, q, k, v = inputs(length)
    out = kernel_function(kernel)(with_logits(inner), x, q, k, v, torch.arange(length))
    expected = attention_by_loop(is_visible, slopes, LOGITS[LAYER].tolist(), length)
    torch.testing.assert_close(out[0].detach(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["auto", "blocks"])
@pytest.mark.parametrize("inner", [NoPE, Alibi, WINDOW, STREAMING, Fox, Shaw])
@pytest.mark.parametrize("length", [1, 17, 300])
def test_kernels_equal_the_reference_in_outputs_and_gradients(
    inner: Make, kernel: str, length: int
) -> None:
    layer, results = with_logits(inner), []
    for name in ("reference", kernel):
        x, q, k, v = (tensor.requires_grad_() for tensor in inputs(length))
        pos = torch.arange(length)
        out = kernel_function(name)(layer, x, *layer.rotate(x, q, k, pos), v, pos)
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        gradients = torch.autograd.grad((out * weights).sum(), [q, k, v, *layer.parameters()])
        results.append([out, *gradients])
    for expected, actual in zip(*results, strict=True):
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("width", [5, 6, WIDTH])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 2e-2)])
def test_the_causal_kernel_has_the_sink_as_a_key_with_value_0(
    width: int, dtype: torch.dtype, tolerance: float
) -> None:
    """On a GPU, `auto` runs these operations; on a CPU, it chooses `toeplitz`."""
    layer, (x, q, k, v) = with_logits(NoPE), inputs(23, dtype)
    q, k, v = (tensor.requires_grad_() for tensor in (q[..., :width], k[..., :width], v))
    exact = reference.attend(layer, x, q.double(), k.double(), v.double(), torch.arange(23))
    *grads, grad_logits = torch.autograd.grad(exact.sum(), [q, k, v, *layer.parameters()])
    sink = LOGITS[LAYER].double().requires_grad_()
    out = attention_with_sink_key(q, k, v, sink, WIDTH**-0.5)
    results = [out, *torch.autograd.grad(out.sum(), [q, k, v, sink])]
    for expected, result in zip([exact, *grads, grad_logits[LAYER]], results, strict=True):
        scale = max(1.0, expected.abs().max().item())
        assert (result.double() - expected.double()).abs().max() <= tolerance * scale


def test_a_fixed_logit_of_0_adds_1_to_the_denominator() -> None:
    """With equal scores, n keys have weights of 1 / (n + 1)."""
    encoding = Sinks(GEOMETRY, inner=NoPE, trainable=False)
    assert not list(encoding.parameters()) and not encoding.state_dict()
    x, q, _, v = inputs(5)
    for kernel in ("reference", "auto"):
        out = kernel_function(kernel)(encoding, x, 0 * q, q, torch.ones_like(v), torch.arange(5))
        expected = torch.tensor([1 / 2, 2 / 3, 3 / 4, 4 / 5, 5 / 6], dtype=torch.float64)
        torch.testing.assert_close(out[0, 0, :, 0], expected)


def test_each_layer_has_its_own_learned_logits() -> None:
    encoding = Sinks(GEOMETRY, inner=NoPE, logit=-0.5)
    (logits,) = encoding.parameters()
    assert logits.tolist() == [[-0.5] * HEADS] * 2
    logits.data.copy_(LOGITS)
    assert [encoding.at_layer(i).sink().tolist() for i in range(2)] == LOGITS.tolist()


def test_a_large_sink_takes_all_the_weight_and_a_small_one_none() -> None:
    x, q, k, v = inputs(40, torch.float32)
    pos = torch.arange(40)
    for kernel in ("reference", "toeplitz", "blocks"):
        attend = kernel_function(kernel)
        plain = attend(NoPE(GEOMETRY), x, q, k, v, pos)
        small, large = (
            attend(Sinks(GEOMETRY, inner=NoPE, logit=s, trainable=False), x, q, k, v, pos)
            for s in (-1e4, 1e4)
        )
        torch.testing.assert_close(small, plain)
        assert not large.any()


def test_invalid_parameters_and_inner_encodings_are_rejected() -> None:
    with pytest.raises(ValueError, match="inner=Sinks already has a sink"):
        Sinks(GEOMETRY, inner=partial(Sinks, inner=NoPE))
    with pytest.raises(ValueError, match="inner=StickBreaking has no softmax"):
        Sinks(GEOMETRY, inner=StickBreaking)
    with pytest.raises(ValueError, match="logit=inf must be finite"):
        Sinks(GEOMETRY, inner=NoPE, logit=math.inf)
    with pytest.raises(ValueError, match="start_size=-1 at least 0"):
        Window(GEOMETRY, inner=NoPE, start_size=-1)
