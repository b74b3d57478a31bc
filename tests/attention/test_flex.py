"""FlexAttention: its scores and masks on a CPU, the compiled kernel on a GPU."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from posenc.attention import UnsupportedKernelError, flex, reference
from posenc.attention.choice import kernel_function
from posenc.attention.toeplitz import bias_by_distance
from posenc.encodings.alibi import Alibi
from posenc.encodings.bam import Bam
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cable import Cable
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox, FoxFixed
from posenc.encodings.grape_a import GrapeA
from posenc.encodings.interleave import Interleave
from posenc.encodings.k_cable import KCable
from posenc.encodings.kerple import KerpleLog, KerplePower
from posenc.encodings.nope import NoPE
from posenc.encodings.randomized import Randomized
from posenc.encodings.sandwich import Sandwich
from posenc.encodings.sinks import Sinks
from posenc.encodings.t5 import T5
from posenc.encodings.window import Window

GEOMETRY = Geometry(width=64, heads=4, layers=1, train_length=64)
Make = Callable[[Geometry], Encoding]
FORMULAS: list[Make] = [
    Alibi,
    KerpleLog,
    KerplePower,
    Bam,
    FoxFixed,
    partial(Alibi, trainable=True),
    partial(Window, inner=KerpleLog, size=100),
    partial(Sinks, inner=Alibi, logit=1.5, trainable=False),
]
TABLES: list[Make] = [T5, Sandwich, partial(Window, inner=T5, size=100)]
FACTORS: list[Make] = [
    Fox,
    Cable,
    GrapeA,
    partial(Fox, gate="forget"),
    partial(Window, inner=Fox, size=100),
]
WITHOUT_BIAS: list[Make] = [NoPE, partial(Window, inner=NoPE, size=100)]
MAKES = [*WITHOUT_BIAS, *FORMULAS, *TABLES, *FACTORS]


def inputs(length: int, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    qkv = [torch.randn(2, 4, length, 16, generator=generator) for _ in range(3)]
    x = torch.randn(2, length, 64, generator=generator)
    return [tensor.to(device) for tensor in (x, *qkv)]


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use PyTorch's eager FlexAttention, which runs on any device but has no gradient on a CPU."""
    monkeypatch.setattr(flex, "compiled_flex_attention", lambda: flex_attention)


@pytest.mark.parametrize(
    ("make", "length"),
    [
        *((make, 131) for make in MAKES),
        *((make, length) for make in (Alibi, Fox) for length in (1, 257)),
        *(
            pytest.param(make, length, marks=pytest.mark.slow)
            for make, length in [
                *((NoPE, length) for length in (1, 128, 257)),
                *((T5, length) for length in (1, 128, 257)),
                *((make, 128) for make in (Alibi, Fox)),
                *((make, 1100) for make in (Fox, Cable)),
            ]
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_the_uncompiled_kernel_equals_the_reference(
    make: Make, length: int, uncompiled: None
) -> None:
    torch.manual_seed(0)
    encoding, pos = make(GEOMETRY), torch.arange(length)
    x, q, k, v = inputs(length)
    table = (
        bias_by_distance(encoding, q.dtype, pos) if flex.needs_bias_by_distance(encoding) else None
    )
    out = flex.attend(encoding, x, q, k, v, pos, table)
    torch.testing.assert_close(out, reference.attend(encoding, x, q, k, v, pos), rtol=0, atol=2e-6)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_a_formula_and_its_bias_table_give_the_same_output(uncompiled: None) -> None:
    encoding, pos = KerpleLog(GEOMETRY), torch.arange(131)
    x, q, k, v = inputs(131)
    table = bias_by_distance(encoding, q.dtype, pos)
    by_formula = flex.attend(encoding, x, q, k, v, pos)
    torch.testing.assert_close(by_formula, flex.attend(encoding, x, q, k, v, pos, table))


def test_a_formula_needs_a_table_only_for_its_gradient() -> None:
    """A trainable coefficient gets its gradient through the table."""
    for make in [Alibi, FoxFixed, *WITHOUT_BIAS, partial(Window, inner=Alibi, size=100)]:
        assert not flex.needs_bias_by_distance(make(GEOMETRY))
    for make in [KerpleLog, Bam, partial(Alibi, trainable=True), *TABLES]:
        assert flex.needs_bias_by_distance(make(GEOMETRY))
    with torch.no_grad():
        assert not any(flex.needs_bias_by_distance(make(GEOMETRY)) for make in FORMULAS)
        assert all(flex.needs_bias_by_distance(make(GEOMETRY)) for make in TABLES)


def test_a_wrapper_that_changes_distances_has_no_formula() -> None:
    assert flex.formula_source(Randomized(GEOMETRY, inner=Alibi)) is None


def test_a_layer_of_a_hybrid_has_its_own_formula() -> None:
    two_layers = Geometry(width=64, heads=4, layers=2, train_length=64)
    hybrid = Window(two_layers, inner=partial(Interleave, first=NoPE, second=Alibi), size=100)
    sources = [flex.formula_source(hybrid.at_layer(layer)) for layer in range(2)]
    assert sources[0] is None and isinstance(sources[1], Alibi)


@pytest.mark.parametrize("make", MAKES)
def test_a_cpu_is_not_supported(make: Make) -> None:
    x, q, k, v = inputs(9)
    with pytest.raises(UnsupportedKernelError, match=r"kernel=flex does not support .* cpu"):
        kernel_function("flex")(make(GEOMETRY), x, q, k, v, torch.arange(9))


@pytest.mark.gpu
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("length", [130, 1024])
def test_the_compiled_kernel_equals_the_reference_in_outputs_and_gradients(
    make: Make, length: int
) -> None:
    torch.manual_seed(0)
    encoding, pos = make(GEOMETRY).cuda(), torch.arange(length, device="cuda")
    x, *qkv = inputs(length, "cuda")
    results = []
    for name in ("reference", "flex"):
        q, k, v = (tensor.clone().requires_grad_() for tensor in qkv)
        out = kernel_function(name)(encoding, x, q, k, v, pos)
        loss = (out * torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out)).sum()
        results.append([out, *torch.autograd.grad(loss, [q, k, v, *encoding.parameters()])])
    for expected, result in zip(*results, strict=True):
        assert (result - expected).abs().max() <= 2e-3 * expected.abs().max().clamp(min=1.0)


@pytest.mark.gpu
def test_many_lengths_do_not_fall_back_to_eager_mode() -> None:
    """There are 13 padded lengths; PyTorch's default recompilation limit is 8."""
    encoding = Alibi(GEOMETRY)
    for length in range(100, 100 + 40 * 37, 37):
        x, q, k, v = inputs(length, "cuda")
        pos = torch.arange(length, device="cuda")
        out = kernel_function("flex")(encoding, x, q, k, v, pos)
        expected = reference.attend(encoding, x, q, k, v, pos)
        assert (out - expected).abs().max() < 2e-3


@pytest.mark.gpu
@pytest.mark.parametrize("make", [Fire, KCable])
def test_a_bias_that_is_neither_toeplitz_nor_low_rank_is_not_supported(make: Make) -> None:
    x, q, k, v = inputs(9, "cuda")
    with pytest.raises(UnsupportedKernelError, match="kernel=flex does not support"):
        kernel_function("flex")(make(GEOMETRY).cuda(), x, q, k, v, torch.arange(9, device="cuda"))
