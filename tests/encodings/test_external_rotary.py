"""RoPE, compared with transformers, x-transformers and rotary-embedding-torch."""

import warnings
from functools import partial
from typing import Any

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding as LucidRotary
from rotary_embedding_torch import apply_rotary_emb
from torch import Tensor
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox_rotate
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotate
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from posenc.encodings.base import Geometry
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import Spectrum, geometric, ntk, position_interpolation

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    from x_transformers import Decoder
    from x_transformers.x_transformers import RotaryEmbedding as XRotary
    from x_transformers.x_transformers import apply_rotary_pos_emb as x_rotate

WIDTHS = [16, 64, 128, 256]
BASES = [10.0, 1e4, 5e5, 1e7]
HEADS = 3


def rope(width: int, spectrum: Spectrum = geometric, **kwargs: Any) -> Rope:
    return Rope(Geometry(HEADS * width, HEADS, 1, train_length=64), spectrum=spectrum, **kwargs)


def queries(length: int, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, HEADS, length, width, dtype=dtype)


def rotated(encoding: Rope, q: Tensor, pos: Tensor | None = None) -> Tensor:
    length = q.shape[-2]
    pos = torch.arange(length) if pos is None else pos
    return encoding.rotate(torch.zeros(len(q), length, 1), q, q, pos)[0]


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    """Compare at positions below 64, where float32 angles are off by less than 64 * 2^-22."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def llama(width: int, base: float) -> LlamaRotaryEmbedding:
    rope_parameters = {"rope_type": "default", "rope_theta": base}
    return LlamaRotaryEmbedding(
        LlamaConfig(hidden_size=width, num_attention_heads=1, rope_parameters=rope_parameters)
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("base", BASES)
def test_llama_equals_rope(width: int, base: float) -> None:
    q, k = queries(64, width), queries(64, width)
    theirs = apply_rotary_pos_emb(q, k, *llama(width, base)(q, torch.arange(64)[None]))
    ours = rope(width, partial(geometric, base=base)).rotate(q, q, k, torch.arange(64))
    assert_close(ours[0], theirs[0])
    assert_close(ours[1], theirs[1])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("position", [1_000, 16_000, 100_000])
def test_llama_is_inexact_because_of_float32_angles_and_ours_is_exact(
    width: int, base: float, position: int
) -> None:
    """Theirs has the rounding error of an angle that is as large as the position."""
    angles = position * base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    exact = torch.cat([angles.cos(), angles.sin()])
    cos, sin = llama(width, base)(torch.zeros(1), torch.tensor([[position]]))
    theirs = torch.cat([cos[0, 0, : width // 2], sin[0, 0, : width // 2]])
    spectrum = partial(geometric, base=base)
    ours = torch.cat(rope(width, spectrum).sinusoids(torch.tensor([position]), torch.float32), -1)
    our_error = (ours.flatten().double() - exact).abs().max().item()
    their_error = (theirs.double() - exact).abs().max().item()
    assert our_error < 2**-24
    assert 10 * our_error < their_error < 4 * position * 2**-24


@pytest.mark.parametrize(
    ("position", "expected"), [(1_000, 1.4e-5), (16_000, 2.1e-4), (100_000, 1.1e-3)]
)
def test_the_error_of_llamas_cosines_grows_with_the_position(
    position: int, expected: float
) -> None:
    """At width 64 and base 10,000; each expected error may be off by a factor of 2."""
    cos, _ = llama(64, 1e4)(torch.zeros(1), torch.tensor([[position]]))
    ours, _ = rope(64).sinusoids(torch.tensor([position]), torch.float64)
    error = (cos[0, 0, :32] - ours.flatten()).abs().max().item()
    assert expected / 2 < error < expected * 2


def test_llama_in_bfloat16_rounds_cosines_and_ours_only_the_result() -> None:
    q = queries(64, 128, torch.bfloat16)
    exact = rotated(rope(128), q.double())
    theirs, _ = apply_rotary_pos_emb(q, q, *llama(128, 1e4)(q, torch.arange(64)[None]))
    ours = rotated(rope(128), q).double()
    torch.testing.assert_close(ours, exact, rtol=2**-8, atol=1e-5)
    assert (theirs.double() - exact).norm() > 1.3 * (ours - exact).norm()


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("base", BASES)
def test_gpt_neox_equals_partial_rope(fraction: float, base: float) -> None:
    parameters = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": fraction}
    config = GPTNeoXConfig(hidden_size=192, num_attention_heads=3, rope_parameters=parameters)
    q = queries(64, 64)
    theirs, _ = neox_rotate(q, q, *GPTNeoXRotaryEmbedding(config)(q, torch.arange(64)[None]))
    assert_close(
        rotated(rope(64, partial(geometric, base=base), rotary_fraction=fraction), q), theirs
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_gpt_j_equals_interleaved_rope(width: int) -> None:
    q = queries(64, width)
    sin, cos = create_sinusoidal_positions(64, width)[None].chunk(2, dim=-1)
    theirs = gptj_rotate(q.transpose(1, 2), sin, cos).transpose(1, 2)
    assert_close(rotated(rope(width, layout="interleaved"), q), theirs)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("base", BASES)
def test_x_transformers_equals_interleaved_rope(width: int, base: float) -> None:
    q = queries(64, width)
    theirs = x_rotate(q, *XRotary(width, base=base)(torch.arange(64)))
    ours = rope(width, partial(geometric, base=base), layout="interleaved")
    assert_close(rotated(ours, q), theirs)


@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_x_transformers_interpolation_and_base_rescaling_equal_ours(factor: float) -> None:
    q = queries(64, 64)
    for argument, spectrum in [
        ("interpolation_factor", position_interpolation),
        ("base_rescale_factor", ntk),
    ]:
        theirs = x_rotate(q, *XRotary(64, **{argument: factor})(torch.arange(64)))
        ours = rope(64, partial(spectrum, factor=factor), layout="interleaved")
        assert_close(rotated(ours, q), theirs)


@pytest.mark.parametrize(("width", "fraction"), [(64, 0.5), (128, 0.5), (32, 0.5)])
def test_x_transformers_rotates_half_of_the_channels_by_default_and_ours_all(
    width: int, fraction: float
) -> None:
    decoder = Decoder(
        dim=HEADS * width, depth=1, heads=HEADS, attn_dim_head=width, rotary_pos_emb=True
    )
    rotary, q = decoder.rotary_pos_emb, queries(64, width)
    assert isinstance(rotary, XRotary)
    theirs = x_rotate(q, *rotary(torch.arange(64)))
    assert_close(rotated(rope(width, layout="interleaved", rotary_fraction=fraction), q), theirs)
    assert rope(width).rotary_dim == width


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("base", BASES)
def test_rotary_embedding_torch_equals_interleaved_rope(width: int, base: float) -> None:
    q = queries(64, width)
    theirs = LucidRotary(width, theta=base).rotate_queries_or_keys(q)
    ours = rope(width, partial(geometric, base=base), layout="interleaved")
    assert_close(rotated(ours, q), theirs)


@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_rotary_embedding_torch_interpolation_and_theta_rescaling_equal_ours(
    factor: float,
) -> None:
    q = queries(64, 64)
    for argument, spectrum in [
        ("interpolate_factor", position_interpolation),
        ("theta_rescale_factor", ntk),
    ]:
        kwargs: dict[str, Any] = {argument: factor}
        theirs = LucidRotary(64, **kwargs).rotate_queries_or_keys(q)
        ours = rope(64, partial(spectrum, factor=factor), layout="interleaved")
        assert_close(rotated(ours, q), theirs)


@pytest.mark.parametrize("sides", [(7, 9), (5, 8), (3, 4, 5)])
@pytest.mark.parametrize("width", [24, 96])
def test_rotary_embedding_torch_equals_axial_rope(sides: tuple[int, ...], width: int) -> None:
    axes = len(sides)
    q = torch.randn(2, HEADS, *sides, width)
    angles = LucidRotary(width // axes, freqs_for="lang").get_axial_freqs(*sides)
    theirs = apply_rotary_emb(angles, q).flatten(2, -2)
    points = torch.cartesian_prod(*(torch.arange(side) for side in sides))
    ours = rotated(rope(width, layout="interleaved"), q.flatten(2, -2), points.expand(2, -1, -1))
    assert_close(ours, theirs)


def test_rotary_embedding_torch_has_bfloat16_positions_and_ours_does_not() -> None:
    """Theirs is wrong: positions of bfloat16 queries are bfloat16, which is exact up to 256."""
    q = queries(1, 64, torch.bfloat16).expand(-1, -1, 300, -1)
    theirs = LucidRotary(64).rotate_queries_or_keys(q)
    assert torch.equal(theirs[:, :, 257], theirs[:, :, 256])
    ours = rotated(rope(64, layout="interleaved"), q)
    exact = rotated(rope(64, layout="interleaved"), q.double())
    torch.testing.assert_close(ours.double(), exact, rtol=2**-8, atol=1e-5)
    assert (exact[:, :, 257] - theirs[:, :, 257]).abs().max() > 0.5
