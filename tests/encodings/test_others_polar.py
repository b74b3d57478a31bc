"""xPos and PoPE against x-transformers, rotary-embedding-torch and PoPE-pytorch: their scores."""

import math
import warnings
from functools import partial

import pytest
import torch
from PoPE_pytorch import AxialPoPE, PoPE
from rotary_embedding_torch import RotaryEmbedding as LucidRotary
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.pope import Pope
from posenc.encodings.spectra import geometric
from posenc.encodings.xpos import Xpos

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    from x_transformers.x_transformers import (
        PolarEmbedding,
        RotaryEmbedding,
        apply_polar_pos_emb,
        apply_rotary_pos_emb,
    )

HEADS = 6
WIDTHS = [16, 64, 128]
BASES = [10.0, 1e4, 1e7]
knobs = pytest.mark.parametrize(("width", "base"), [(w, b) for w in WIDTHS for b in BASES])


def shape(width: int) -> Geometry:
    return Geometry(width=HEADS * width, heads=HEADS, layers=1, train_length=32)


def drawn(length: int, width: int) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 2, HEADS, length, width).unbind(0)
    return q.requires_grad_(), k.requires_grad_()


def scores(encoding: Encoding, q: Tensor, k: Tensor, pos: Tensor | None = None) -> Tensor:
    length = q.shape[2]
    pos = torch.arange(length) if pos is None else pos
    turned_q, turned_k = encoding.rotate(torch.zeros(2, length, 1), q, k, pos)
    return turned_q @ turned_k.mT


def assert_same(ours: Tensor, theirs: Tensor, inputs: list[tuple[Tensor, Tensor]]) -> None:
    """The same scores, and gradients in each pair of ours and theirs, in float32 throughout."""
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
    weights = torch.randn_like(ours)
    mine, its = zip(*inputs, strict=True)
    found = torch.autograd.grad((ours * weights).sum(), mine)
    wanted = torch.autograd.grad((theirs * weights).sum(), its)
    for slope, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(slope.view_as(other), other, rtol=1e-3, atol=1e-2)


@knobs
@pytest.mark.parametrize(("length", "scale_base"), [(48, 512), (37, 512), (40, 64)])
def test_xpos_of_x_transformers_gives_our_scores(
    width: int, base: float, length: int, scale_base: int
) -> None:
    """Theirs has its middle at floor(T / 2), ours at ceil(T / 2): it cancels."""
    q, k = drawn(length, width)
    rotary = RotaryEmbedding(width, use_xpos=True, scale_base=scale_base, base=base)
    angles, scale = rotary(torch.arange(length))
    turned_q = apply_rotary_pos_emb(q, angles, scale)
    turned_k = apply_rotary_pos_emb(k, angles, scale**-1)
    spectrum = partial(geometric, base=base)
    encoding = Xpos(shape(width), spectrum=spectrum, scale_base=scale_base)
    assert_same(scores(encoding, q, k), turned_q @ turned_k.mT, [(q, q), (k, k)])


@knobs
@pytest.mark.parametrize(("length", "scale_base"), [(48, 512), (37, 512), (40, 64)])
def test_xpos_of_rotary_embedding_torch_gives_our_scores(
    width: int, base: float, length: int, scale_base: int
) -> None:
    q, k = drawn(length, width)
    rotary = LucidRotary(width, use_xpos=True, xpos_scale_base=scale_base, theta=base)
    turned_q, turned_k = rotary.rotate_queries_and_keys(q, k)
    spectrum = partial(geometric, base=base)
    encoding = Xpos(shape(width), spectrum=spectrum, scale_base=scale_base)
    assert_same(scores(encoding, q, k), turned_q @ turned_k.mT, [(q, q), (k, k)])


def test_xpos_of_x_transformers_overflows_at_length_80_000_and_ours_refuses() -> None:
    """Theirs is wrong there without a word: the scale of the first key is infinite in float32."""
    _, scale = RotaryEmbedding(64, use_xpos=True)(torch.arange(80_000))
    assert (scale**-1).isinf().any()
    encoding = Xpos(shape(64), spectrum=geometric)
    q = torch.zeros(1, HEADS, 1, 64).expand(-1, -1, 80_000, -1)
    with pytest.raises(ValueError, match="scale_base"):
        encoding.rotate(torch.zeros(1, 1, 1), q, q, torch.arange(80_000))


def pope(width: int, base: float = 1e4) -> Pope:
    """With phases of which some are outside of [-2 pi, 0], where they count as its ends."""
    encoding = Pope(shape(width), spectrum=partial(geometric, base=base))
    torch.nn.init.uniform_(encoding.phase, -2.3 * math.pi, 0.3 * math.pi)
    return encoding


@knobs
def test_pope_pytorch_gives_our_scores(width: int, base: float) -> None:
    encoding, module = pope(width, base), PoPE(width, heads=HEADS, theta=base)
    module.bias.data = encoding.phase.data[0, :, 0].clone()
    q, k = drawn(40, width)
    turned_q, turned_k = module.apply_pope_to_qk(module(40), q, k)
    inputs = [(q, q), (k, k), (encoding.phase, module.bias)]
    assert_same(scores(encoding, q, k), turned_q @ turned_k.mT, inputs)


@knobs
def test_polar_embedding_of_x_transformers_gives_our_scores(width: int, base: float) -> None:
    """As its Attention calls it."""
    encoding, module = pope(width, base), PolarEmbedding(width, HEADS, base=base)
    module.learned_bias.data = encoding.phase.data[0].clone()
    q, k = drawn(40, width)
    angles, phases = module(torch.arange(40))
    turned_q = apply_polar_pos_emb(q, angles)
    turned_k = apply_polar_pos_emb(k, angles + phases)
    inputs = [(q, q), (k, k), (encoding.phase, module.learned_bias)]
    assert_same(scores(encoding, q, k), turned_q @ turned_k.mT, inputs)


@pytest.mark.parametrize("sides", [(6, 7), (3, 4, 5)])
@pytest.mark.parametrize("width", [12, 96])
def test_axial_pope_of_pope_pytorch_gives_our_scores(sides: tuple[int, ...], width: int) -> None:
    axes = len(sides)
    encoding = pope(width)
    module = AxialPoPE(width, heads=HEADS, axial_dims=(width // axes,) * axes)
    module.bias.data = encoding.phase.data[0, :, 0].clone()
    points = torch.cartesian_prod(*(torch.arange(side) for side in sides))
    q, k = drawn(len(points), width)
    turned_q, turned_k = module.apply_pope_to_qk(module(points.float()), q, k)
    ours = scores(encoding, q, k, points.expand(2, -1, -1))
    inputs = [(q, q), (k, k), (encoding.phase, module.bias)]
    assert_same(ours, turned_q @ turned_k.mT, inputs)


def test_others_cannot_start_pope_with_uniform_phases_and_ours_can() -> None:
    """Theirs is wrong: both draw in place, into a parameter that wants a gradient."""
    assert PoPE(8, heads=HEADS).bias.eq(0).all()
    assert PolarEmbedding(8, HEADS).learned_bias.eq(0).all()
    assert Pope(shape(8), spectrum=geometric).phase.eq(0).all()
    with pytest.raises(RuntimeError, match="in-place"):
        PoPE(8, heads=HEADS, bias_uniform_init=True)
    with pytest.raises(RuntimeError, match="in-place"):
        PolarEmbedding(8, HEADS, bias_uniform_init=True)
    phases = Pope(shape(64), spectrum=geometric, phases="uniform").phase
    assert -2 * math.pi <= phases.min() < -6 and -0.2 < phases.max() <= 0
