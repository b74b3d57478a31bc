"""FlexAttention: its scores and masks on a CPU, the compiled kernel on a GPU."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from posenc.attention import UnsupportedKernelError, flex, reference
from posenc.attention.choice import get_kernel
from posenc.attention.toeplitz import bias_by_distance
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox
from posenc.encodings.kerple import KerpleLog
from posenc.encodings.nope import NoPE
from posenc.encodings.t5 import T5
from posenc.encodings.window import Window

GEOMETRY = Geometry(width=64, heads=4, layers=1, train_length=64)
Make = Callable[[Geometry], Encoding]
MAKES: list[Make] = [NoPE, Alibi, T5, KerpleLog, partial(Window, inner=T5, size=100)]


def inputs(length: int, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    heads = [torch.randn(2, 4, length, 16, generator=generator) for _ in range(3)]
    x = torch.randn(2, length, 64, generator=generator)
    return [tensor.to(device) for tensor in (x, *heads)]


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's eager FlexAttention, which runs on any device but has no gradient."""
    monkeypatch.setattr(flex, "compiled_flex_attention", lambda: flex_attention)


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("length", [1, 130, 300])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_the_uncompiled_kernel_equals_the_reference(
    make: Make, length: int, uncompiled: None
) -> None:
    torch.manual_seed(0)
    encoding, pos = make(GEOMETRY), torch.arange(length)
    x, q, k, v = inputs(length)
    bias = bias_by_distance(encoding, q.dtype, pos)
    assert bias is not None
    out = flex.attend(encoding, x, q, k, v, pos, bias)
    torch.testing.assert_close(out, reference.attend(encoding, x, q, k, v, pos), rtol=0, atol=2e-6)


@pytest.mark.parametrize("make", MAKES)
def test_a_cpu_is_not_supported(make: Make) -> None:
    x, q, k, v = inputs(9)
    with pytest.raises(UnsupportedKernelError, match=r"kernel=flex does not support .* cpu"):
        get_kernel("flex")(make(GEOMETRY), x, q, k, v, torch.arange(9))


@pytest.mark.gpu
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("length", [130, 1024])
def test_the_compiled_kernel_equals_the_reference_in_outputs_and_gradients(
    make: Make, length: int
) -> None:
    torch.manual_seed(0)
    encoding, pos = make(GEOMETRY).cuda(), torch.arange(length, device="cuda")
    x, *heads = inputs(length, "cuda")
    results = []
    for name in ("reference", "flex"):
        q, k, v = (tensor.clone().requires_grad_() for tensor in heads)
        out = get_kernel(name)(encoding, x, q, k, v, pos)
        loss = (out * torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out)).sum()
        results.append([out, *torch.autograd.grad(loss, [q, k, v, *encoding.parameters()])])
    for expected, result in zip(*results, strict=True):
        assert (result - expected).abs().max() <= 2e-3 * expected.abs().max().clamp(min=1.0)


@pytest.mark.gpu
def test_many_lengths_do_not_fall_back_to_eager_mode() -> None:
    """More lengths than PyTorch's limit of recompilations."""
    encoding = Alibi(GEOMETRY)
    for length in range(100, 100 + 40 * 37, 37):
        x, q, k, v = inputs(length, "cuda")
        pos = torch.arange(length, device="cuda")
        out = get_kernel("flex")(encoding, x, q, k, v, pos)
        expected = reference.attend(encoding, x, q, k, v, pos)
        assert (out - expected).abs().max() < 2e-3


@pytest.mark.gpu
@pytest.mark.parametrize("make", [Fire, Fox])
def test_biases_that_depend_on_more_than_distance_are_not_supported(make: Make) -> None:
    x, q, k, v = inputs(9, "cuda")
    with pytest.raises(UnsupportedKernelError, match="kernel=flex does not support"):
        get_kernel("flex")(make(GEOMETRY).cuda(), x, q, k, v, torch.arange(9, device="cuda"))
