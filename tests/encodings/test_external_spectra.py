"""Every rope_type of transformers' modeling_rope_utils, compared with its spectrum."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from posenc.encodings.base import Geometry
from posenc.encodings.longrope import LongRope
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import (
    Frequencies,
    Spectrum,
    dynamic_ntk,
    dynamic_ntk_hf,
    geometric,
    longrope,
    ntk_by_parts,
    p_rope,
    position_interpolation,
    yarn,
    yarn_paper,
)

# head dimension, base, training length, factor
CASES = [
    (16, 10.0, 64, 2.0),
    (64, 1e4, 512, 4.0),
    (64, 1e4, 100, 3.5),
    (96, 1e3, 128, 1.0),
    (128, 1e4, 4096, 16.0),
    (128, 5e5, 8192, 8.0),
    (256, 1e7, 2048, 40.0),
]
cases = pytest.mark.parametrize(("width", "base", "train_length", "factor"), CASES)


def config(
    rope_type: str, width: int, base: float, max_positions: int, **kwargs: Any
) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=2 * width,
        num_attention_heads=2,
        head_dim=width,
        max_position_embeddings=max_positions,
        rope_parameters={"rope_type": rope_type, "rope_theta": base, **kwargs},
    )


def their_frequencies(
    rope_type: str,
    width: int,
    base: float,
    max_positions: int,
    *,
    length: int | None = None,
    **kwargs: Any,
) -> Frequencies:
    return ROPE_INIT_FUNCTIONS[rope_type](
        config(rope_type, width, base, max_positions, **kwargs), seq_len=length
    )


def assert_same(ours: Frequencies, expected: Frequencies) -> None:
    """Compare with frequencies in float32, whose relative error is up to 2^-24 ln(base)."""
    torch.testing.assert_close(ours[0].float(), expected[0], rtol=4e-6, atol=0)
    assert ours[1] == pytest.approx(expected[1], rel=1e-12)


@cases
def test_linear_equals_position_interpolation(
    width: int, base: float, train_length: int, factor: float
) -> None:
    expected = their_frequencies("linear", width, base, train_length, factor=factor)
    assert_same(position_interpolation(width, train_length, 1, base=base, factor=factor), expected)


@cases
def test_dynamic_equals_dynamic_ntk_hf(
    width: int, base: float, train_length: int, factor: float
) -> None:
    for length in (1, train_length, train_length + 1, 2 * train_length, 9 * train_length + 5):
        expected = their_frequencies(
            "dynamic", width, base, train_length, length=length, factor=factor
        )
        ours = dynamic_ntk_hf(width, train_length, length, base=base, factor=factor)
        assert_same(ours, expected)


def test_dynamic_equals_the_papers_only_for_a_factor_of_1() -> None:
    """Section 3.3 of the YaRN paper has no factor other than length / L."""
    paper = dynamic_ntk(64, 512, 2048)
    assert_same(paper, their_frequencies("dynamic", 64, 1e4, 512, length=2048, factor=1.0))
    lowest = their_frequencies("dynamic", 64, 1e4, 512, length=2048, factor=2.0)[0][-1].item()
    assert paper[0][-1].item() / lowest == pytest.approx(7 / 4, rel=1e-4)


def test_dynamic_of_llama_depends_on_earlier_calls() -> None:
    """Theirs is wrong: after a call on 4L tokens, 2L tokens get the frequencies of 4L."""
    rotary = LlamaRotaryEmbedding(config("dynamic", 64, 1e4, 128, factor=1.0))

    def lowest_after(length: int) -> float:
        rotary(torch.zeros(1), torch.arange(length)[None])
        return rotary.inv_freq[-1].item()

    lowest = dynamic_ntk_hf(64, 128, 256, factor=1.0)[0][-1].item()
    assert lowest_after(256) == pytest.approx(lowest, rel=1e-5)
    assert lowest_after(512) == pytest.approx(lowest / 2, rel=1e-5)
    assert lowest_after(256) == pytest.approx(lowest / 2, rel=1e-5)


@cases
@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(("beta_slow", "beta_fast"), [(1.0, 32.0), (2.0, 8.0)])
def test_yarn_of_transformers_equals_ours(
    width: int,
    base: float,
    train_length: int,
    factor: float,
    truncate: bool,
    beta_slow: float,
    beta_fast: float,
) -> None:
    betas = {"beta_fast": beta_fast, "beta_slow": beta_slow, "truncate": truncate}
    scale = {"factor": factor, "original_max_position_embeddings": train_length}
    expected = their_frequencies("yarn", width, base, int(factor * train_length), **betas, **scale)
    ours = yarn(
        width,
        train_length,
        1,
        base=base,
        factor=factor,
        beta_slow=beta_slow,
        beta_fast=beta_fast,
        truncate=truncate,
    )
    assert_same(ours, expected)


@pytest.mark.parametrize(
    ("width", "train_length", "factor", "pair", "largest_ratio"),
    [(64, 512, 4.0, 10, 1.771), (128, 4096, 16.0, 38, 3.041)],
)
def test_yarn_of_transformers_differs_from_the_papers(
    width: int, train_length: int, factor: float, pair: int, largest_ratio: float
) -> None:
    """Theirs is the authors' ramp, linear in the pair's index; eq. 18 is linear in rotations."""
    scale = {"factor": factor, "original_max_position_embeddings": train_length}
    expected, _ = their_frequencies("yarn", width, 1e4, int(factor * train_length), **scale)
    ratio = expected / yarn_paper(width, train_length, 1, factor=factor)[0]
    assert ratio.argmax() == pair
    assert ratio[pair].item() == pytest.approx(largest_ratio, abs=1e-3)


def test_yarn_with_mscale_all_dim_has_no_temperature_on_cosines_and_ours_has() -> None:
    """In DeepSeek's form, cosines get a ratio of two temperatures, here 1; scores get the rest."""
    kwargs = {"factor": 40.0, "original_max_position_embeddings": 4096}
    _, expected = their_frequencies(
        "yarn", 64, 1e4, 163_840, mscale=1.0, mscale_all_dim=1.0, **kwargs
    )
    assert expected == 1
    assert yarn(64, 4096, 1, factor=40.0)[1] == pytest.approx(0.1 * math.log(40) + 1)


@cases
@pytest.mark.parametrize(("beta_slow", "beta_fast"), [(1.0, 4.0), (0.5, 16.0)])
def test_llama3_equals_ntk_by_parts(
    width: int, base: float, train_length: int, factor: float, beta_slow: float, beta_fast: float
) -> None:
    kwargs = {"factor": factor, "original_max_position_embeddings": train_length}
    betas = {"low_freq_factor": beta_slow, "high_freq_factor": beta_fast}
    expected = their_frequencies(
        "llama3", width, base, int(factor * train_length) + 1, **betas, **kwargs
    )
    ours = ntk_by_parts(
        width, train_length, 1, base=base, factor=factor, beta_slow=beta_slow, beta_fast=beta_fast
    )
    assert_same(ours, expected)


@pytest.mark.parametrize("width", [16, 64, 256])
@pytest.mark.parametrize("fraction", [0.25, 0.3, 0.75, 1.0])
def test_proportional_equals_p_rope(width: int, fraction: float) -> None:
    expected = their_frequencies("proportional", width, 1e6, 64, partial_rotary_factor=fraction)
    assert_same(p_rope(width, 64, 64, base=1e6, fraction=fraction), expected)


def test_proportional_divides_by_a_factor_and_p_rope_has_none() -> None:
    kwargs = {"partial_rotary_factor": 0.25, "factor": 8.0}
    expected, magnitude = their_frequencies("proportional", 64, 1e6, 64, **kwargs)
    frequencies, _ = p_rope(64, 64, 64, base=1e6, fraction=0.25)
    assert_same((frequencies / 8, 1.0), (expected, magnitude))


@cases
def test_longrope_of_transformers_equals_ours(
    width: int, base: float, train_length: int, factor: float
) -> None:
    short_factor, long_factor = (torch.rand(2, width // 2) * 4 + 1).tolist()
    kwargs = {"factor": factor, "original_max_position_embeddings": train_length}
    lists = {"short_factor": short_factor, "long_factor": long_factor}
    for length in (1, train_length, train_length + 1, 4 * train_length):
        expected = their_frequencies(
            "longrope", width, base, 10**6, length=length, **lists, **kwargs
        )
        ours = longrope(width, train_length, length, base=base, factor=factor, **lists)
        assert_same(ours, expected)


def test_longrope_of_transformers_differs_from_the_papers() -> None:
    """Theirs also rescales the first positions and has a magnitude that is not in the paper."""
    factors = torch.linspace(1, 4, 8).tolist()
    kwargs = {"factor": 4.0, "original_max_position_embeddings": 64}
    lists = {"short_factor": [1.0] * 8, "long_factor": factors}
    rotary = LlamaRotaryEmbedding(config("longrope", 16, 1e4, 256, **lists, **kwargs))
    pos, q = torch.arange(100), torch.randn(1, 1, 100, 16)
    expected, _ = apply_rotary_pos_emb(q, q, *rotary(q, pos[None]))
    geometry = Geometry(width=16, heads=1, layers=1, train_length=64)
    paper = LongRope(geometry, spectrum=geometric, factors=factors, start_tokens=4)
    ours, _ = paper.rotate(q, q, q, pos)
    magnitude = math.sqrt(1 + math.log(4) / math.log(64))
    torch.testing.assert_close(expected[:, :, 4:], magnitude * ours[:, :, 4:], rtol=1e-4, atol=1e-4)
    assert (expected - magnitude * ours)[:, :, 1:4].abs().max() > 0.01


@pytest.mark.parametrize("fraction", [0.25, 0.5])
@pytest.mark.parametrize("rope_type", ["linear", "dynamic", "yarn", "llama3"])
def test_partial_rotary_factor_gives_the_spectrum_of_that_fraction_of_the_width(
    rope_type: str, fraction: float
) -> None:
    spectra = {
        "linear": position_interpolation,
        "dynamic": dynamic_ntk_hf,
        "yarn": yarn,
        "llama3": ntk_by_parts,
    }
    kwargs = {
        "factor": 2.0,
        "original_max_position_embeddings": 512,
        "partial_rotary_factor": fraction,
    }
    betas = {"low_freq_factor": 1.0, "high_freq_factor": 32.0} if rope_type == "llama3" else {}
    expected = their_frequencies(rope_type, 128, 1e4, 512, length=2048, **kwargs, **betas)
    assert_same(spectra[rope_type](int(128 * fraction), 512, 2048, factor=2.0), expected)


ROPE_TYPES: dict[str, tuple[dict[str, Any], Spectrum]] = {
    "default": ({}, geometric),
    "linear": ({"factor": 3.0}, partial(position_interpolation, factor=3.0)),
    "dynamic": ({"factor": 3.0}, partial(dynamic_ntk_hf, factor=3.0)),
    "yarn": ({"factor": 3.0}, partial(yarn, factor=3.0)),
    "longrope": (
        {"factor": 3.0, "short_factor": [1.0] * 16, "long_factor": [2.0] * 16},
        partial(longrope, factor=3.0, long_factor=[2.0] * 16),
    ),
    "llama3": (
        {"factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        partial(ntk_by_parts, factor=3.0, beta_fast=4.0),
    ),
    "proportional": ({"partial_rotary_factor": 0.5}, partial(p_rope, fraction=0.5)),
}


@pytest.mark.parametrize("rope_type", ROPE_TYPES)
@pytest.mark.parametrize("length", [40, 100])
def test_llama_equals_rope_with_every_rope_type(rope_type: str, length: int) -> None:
    """Within the training length of 64 and past it; the magnitude is included."""
    kwargs, spectrum = ROPE_TYPES[rope_type]
    original = {} if rope_type == "default" else {"original_max_position_embeddings": 64}
    rotary = LlamaRotaryEmbedding(config(rope_type, 32, 1e4, 64, **original, **kwargs))
    encoding = Rope(Geometry(64, 2, 1, train_length=64), spectrum=spectrum)
    x, pos = torch.zeros(1, length, 64), torch.arange(length)
    q, k = torch.randn(2, 1, 2, length, 32)
    expected = apply_rotary_pos_emb(q, k, *rotary(x, pos[None]))
    for ours, expected_part in zip(encoding.rotate(x, q, k, pos), expected, strict=True):
        torch.testing.assert_close(ours, expected_part, rtol=1e-4, atol=1e-4)


def test_every_rope_type_is_compared() -> None:
    assert set(ROPE_INIT_FUNCTIONS) | {"default"} == set(ROPE_TYPES)
