"""xPos and PoPE, compared with x-transformers, rotary-embedding-torch and PoPE-pytorch."""

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
widths_and_bases = pytest.mark.parametrize(
    ("width", "base"), [(w, b) for w in WIDTHS for b in BASES]
)


def geometry(width: int) -> Geometry:
    return Geometry(width=HEADS * width, heads=HEADS, layers=1, train_length=32)


def random_inputs(length: int, width: int) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 2, HEADS, length, width).unbind(0)
    return q.requires_grad_(), k.requires_grad_()


def scores(encoding: Encoding, q: Tensor, k: Tensor, pos: Tensor | None = None) -> Tensor:
    length = q.shape[2]
    pos = torch.arange(length) if pos is None else pos
    rotated_q, rotated_k = encoding.rotate(torch.zeros(2, length, 1), q, k, pos)
    return rotated_q @ rotated_k.mT


def assert_same(ours: Tensor, theirs: Tensor, inputs: list[tuple[Tensor, Tensor]]) -> None:
    """Compare scores, and gradients for each pair of our and their inputs, all in float32."""
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
    weights = torch.randn_like(ours)
    our_inputs, their_inputs = zip(*inputs, strict=True)
    actual = torch.autograd.grad((ours * weights).sum(), our_inputs)
    expected = torch.autograd.grad((theirs * weights).sum(), their_inputs)
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        torch.testing.assert_close(
            gradient.view_as(expected_gradient), expected_gradient, rtol=1e-3, atol=1e-2
        )


@widths_and_bases
@pytest.mark.parametrize(("length", "scale_base"), [(48, 512), (37, 512), (40, 64)])
def test_xpos_of_x_transformers_gives_equal_scores(
    width: int, base: float, length: int, scale_base: int
) -> None:
    """Theirs is centered at floor(T / 2), ours at ceil(T / 2); scores do not depend on it."""
    q, k = random_inputs(length, width)
    rotary = RotaryEmbedding(width, use_xpos=True, scale_base=scale_base, base=base)
    angles, scale = rotary(torch.arange(length))
    rotated_q = apply_rotary_pos_emb(q, angles, scale)
    rotated_k = apply_rotary_pos_emb(k, angles, scale**-1)
    spectrum = partial(geometric, base=base)
    encoding = Xpos(geometry(width), spectrum=spectrum, scale_base=scale_base)
    assert_same(scores(encoding, q, k), rotated_q @ rotated_k.mT, [(q, q), (k, k)])


@widths_and_bases
@pytest.mark.parametrize(("length", "scale_base"), [(48, 512), (37, 512), (40, 64)])
def test_xpos_of_rotary_embedding_torch_gives_equal_scores(
    width: int, base: float, length: int, scale_base: int
) -> None:
    q, k = random_inputs(length, width)
    rotary = LucidRotary(width, use_xpos=True, xpos_scale_base=scale_base, theta=base)
    rotated_q, rotated_k = rotary.rotate_queries_and_keys(q, k)
    spectrum = partial(geometric, base=base)
    encoding = Xpos(geometry(width), spectrum=spectrum, scale_base=scale_base)
    assert_same(scores(encoding, q, k), rotated_q @ rotated_k.mT, [(q, q), (k, k)])


def test_xpos_of_x_transformers_overflows_at_length_80_000_and_ours_raises() -> None:
    """Theirs is silently wrong: the scale of the last key is infinite in float32."""
    _, scale = RotaryEmbedding(64, use_xpos=True)(torch.arange(80_000))
    assert (scale[:, -1] ** -1).isinf().any()
    encoding = Xpos(geometry(64), spectrum=geometric)
    q = torch.zeros(1, HEADS, 1, 64).expand(-1, -1, 80_000, -1)
    with pytest.raises(ValueError, match="scale_base"):
        encoding.rotate(torch.zeros(1, 1, 1), q, q, torch.arange(80_000))


def pope(width: int, base: float = 1e4) -> Pope:
    """Return PoPE with phases, some of which are outside [-2 pi, 0] and therefore clamped."""
    encoding = Pope(geometry(width), spectrum=partial(geometric, base=base))
    torch.nn.init.uniform_(encoding.phase, -2.3 * math.pi, 0.3 * math.pi)
    return encoding


@widths_and_bases
def test_pope_pytorch_gives_equal_scores(width: int, base: float) -> None:
    encoding, module = pope(width, base), PoPE(width, heads=HEADS, theta=base)
    module.bias.data = encoding.phase.data[0, :, 0].clone()
    q, k = random_inputs(40, width)
    rotated_q, rotated_k = module.apply_pope_to_qk(module(40), q, k)
    inputs = [(q, q), (k, k), (encoding.phase, module.bias)]
    assert_same(scores(encoding, q, k), rotated_q @ rotated_k.mT, inputs)


@widths_and_bases
def test_polar_embedding_of_x_transformers_gives_equal_scores(width: int, base: float) -> None:
    """PolarEmbedding is called as in the Attention class of x-transformers."""
    encoding, module = pope(width, base), PolarEmbedding(width, HEADS, base=base)
    module.learned_bias.data = encoding.phase.data[0].clone()
    q, k = random_inputs(40, width)
    angles, phase = module(torch.arange(40))
    rotated_q = apply_polar_pos_emb(q, angles)
    rotated_k = apply_polar_pos_emb(k, angles + phase)
    inputs = [(q, q), (k, k), (encoding.phase, module.learned_bias)]
    assert_same(scores(encoding, q, k), rotated_q @ rotated_k.mT, inputs)


@pytest.mark.parametrize("sides", [(6, 7), (3, 4, 5)])
@pytest.mark.parametrize("width", [12, 96])
def test_axial_pope_of_pope_pytorch_gives_equal_scores(sides: tuple[int, ...], width: int) -> None:
    axes = len(sides)
    encoding = pope(width)
    module = AxialPoPE(width, heads=HEADS, axial_dims=(width // axes,) * axes)
    module.bias.data = encoding.phase.data[0, :, 0].clone()
    points = torch.cartesian_prod(*(torch.arange(side) for side in sides))
    q, k = random_inputs(len(points), width)
    rotated_q, rotated_k = module.apply_pope_to_qk(module(points.float()), q, k)
    ours = scores(encoding, q, k, points.expand(2, -1, -1))
    inputs = [(q, q), (k, k), (encoding.phase, module.bias)]
    assert_same(ours, rotated_q @ rotated_k.mT, inputs)


def test_others_fail_to_initialize_pope_with_uniform_phases_and_ours_does_not() -> None:
    """PoPE-pytorch and x-transformers modify in place a parameter that requires a gradient."""
    assert PoPE(8, heads=HEADS).bias.eq(0).all()
    assert PolarEmbedding(8, HEADS).learned_bias.eq(0).all()
    assert Pope(geometry(8), spectrum=geometric).phase.eq(0).all()
    with pytest.raises(RuntimeError, match="in-place"):
        PoPE(8, heads=HEADS, bias_uniform_init=True)
    with pytest.raises(RuntimeError, match="in-place"):
        PolarEmbedding(8, HEADS, bias_uniform_init=True)
    phase = Pope(geometry(64), spectrum=geometric, phase_init="uniform").phase
    assert -2 * math.pi <= phase.min() < -6 and -0.2 < phase.max() <= 0
