"""FlexAttention: its scores and masks here, the compiled kernel itself where there is a GPU."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from posenc.attention import flex, kernel, reference, toeplitz_bias
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
    drawn = [torch.randn(2, 4, length, 16, generator=generator) for _ in range(3)]
    return [
        torch.randn(2, length, 64, generator=generator).to(device),
        *(t.to(device) for t in drawn),
    ]


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own definition of FlexAttention, which takes any device but has no gradient."""
    monkeypatch.setattr(flex, "compiled", lambda: flex_attention)


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("length", [1, 130, 300])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_its_scores_and_masks_are_those_of_the_reference(
    make: Make, length: int, uncompiled: None
) -> None:
    torch.manual_seed(0)
    encoding, pos = make(GEOMETRY), torch.arange(length)
    x, q, k, v = inputs(length)
    bias = toeplitz_bias.line_of(encoding, q, pos)
    assert bias is not None
    got = flex.with_line(encoding, q, k, v, bias)
    torch.testing.assert_close(got, reference.attend(encoding, x, q, k, v, pos), rtol=0, atol=2e-6)


@pytest.mark.parametrize("make", MAKES)
def test_on_a_cpu_it_refuses_by_name(make: Make) -> None:
    x, q, k, v = inputs(9)
    wanted = "kernel=flex cannot serve .*: FlexAttention trains on a CUDA GPU alone, not on cpu"
    with pytest.raises(ValueError, match=wanted):
        kernel("flex")(make(GEOMETRY), x, q, k, v, torch.arange(9))


@pytest.mark.gpu
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("length", [130, 1024])
def test_compiled_it_equals_the_reference_in_outputs_and_gradients(make: Make, length: int) -> None:
    torch.manual_seed(0)
    encoding, pos = make(GEOMETRY).cuda(), torch.arange(length, device="cuda")
    x, *rest = inputs(length, "cuda")
    found = []
    for name in ("reference", "flex"):
        q, k, v = (tensor.clone().requires_grad_() for tensor in rest)
        out = kernel(name)(encoding, x, q, k, v, pos)
        wanted = [q, k, v, *encoding.parameters()]
        loss = (out * torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out)).sum()
        found.append([out, *torch.autograd.grad(loss, wanted)])
    for exact, got in zip(*found, strict=True):
        assert (got - exact).abs().max() <= 2e-3 * exact.abs().max().clamp(min=1.0)


@pytest.mark.gpu
def test_many_lengths_are_never_eager() -> None:
    """More lengths than PyTorch compiles before it would give up."""
    encoding = Alibi(GEOMETRY)
    for length in range(100, 100 + 40 * 37, 37):
        x, q, k, v = inputs(length, "cuda")
        pos = torch.arange(length, device="cuda")
        got = kernel("flex")(encoding, x, q, k, v, pos)
        exact = reference.attend(encoding, x, q, k, v, pos)
        assert (got - exact).abs().max() < 2e-3


@pytest.mark.gpu
@pytest.mark.parametrize("make", [Fire, Fox])
def test_on_a_gpu_it_refuses_what_is_not_of_distance_alone(make: Make) -> None:
    x, q, k, v = inputs(9, "cuda")
    with pytest.raises(ValueError, match="kernel=flex cannot serve"):
        kernel("flex")(make(GEOMETRY).cuda(), x, q, k, v, torch.arange(9, device="cuda"))
