"""Every rope_type of transformers' modeling_rope_utils against the spectrum of its name."""

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
    by_parts,
    dynamic_ntk,
    dynamic_ntk_hf,
    geometric,
    highest,
    interpolated,
    longrope,
    yarn,
    yarn_paper,
)

# width of a head, base, training length, factor
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


def config(kind: str, width: int, base: float, limit: int, **knobs: Any) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=2 * width,
        num_attention_heads=2,
        head_dim=width,
        max_position_embeddings=limit,
        rope_parameters={"rope_type": kind, "rope_theta": base, **knobs},
    )


def theirs(kind: str, *of: Any, length: int | None = None, **knobs: Any) -> Frequencies:
    return ROPE_INIT_FUNCTIONS[kind](config(kind, *of, **knobs), seq_len=length)


def assert_same(ours: Frequencies, peers: Frequencies) -> None:
    """Theirs are in float32, the power too: relative error up to 2^-24 ln(base)."""
    torch.testing.assert_close(ours[0].float(), peers[0], rtol=4e-6, atol=0)
    assert ours[1] == pytest.approx(peers[1], rel=1e-12)


@cases
def test_linear_is_interpolated(width: int, base: float, train_length: int, factor: float) -> None:
    peers = theirs("linear", width, base, train_length, factor=factor)
    assert_same(interpolated(width, train_length, 1, base=base, factor=factor), peers)


@cases
def test_dynamic_is_dynamic_ntk_hf(
    width: int, base: float, train_length: int, factor: float
) -> None:
    for length in (1, train_length, train_length + 1, 2 * train_length, 9 * train_length + 5):
        peers = theirs("dynamic", width, base, train_length, length=length, factor=factor)
        ours = dynamic_ntk_hf(width, train_length, length, base=base, factor=factor)
        assert_same(ours, peers)


def test_dynamic_with_a_factor_of_1_is_the_papers_and_with_any_other_is_not() -> None:
    """Theirs is not YaRN's section 3.3, where no factor but length / L stands."""
    paper = dynamic_ntk(64, 512, 2048)
    assert_same(paper, theirs("dynamic", 64, 1e4, 512, length=2048, factor=1.0))
    lowest = theirs("dynamic", 64, 1e4, 512, length=2048, factor=2.0)[0][-1].item()
    assert paper[0][-1].item() / lowest == pytest.approx(7 / 4, rel=1e-4)


def test_dynamic_of_llama_depends_on_what_it_saw_before_and_ours_does_not() -> None:
    """Theirs is wrong: 4L tokens once leave 2L tokens with the frequencies of 4L."""
    rotary = LlamaRotaryEmbedding(config("dynamic", 64, 1e4, 128, factor=1.0))

    def lowest_after(length: int) -> float:
        rotary(torch.zeros(1), torch.arange(length)[None])
        return rotary.inv_freq[-1].item()

    first = dynamic_ntk_hf(64, 128, 256, factor=1.0)[0][-1].item()
    assert lowest_after(256) == pytest.approx(first, rel=1e-5)
    assert lowest_after(512) == pytest.approx(first / 2, rel=1e-5)
    assert lowest_after(256) == pytest.approx(first / 2, rel=1e-5)


@cases
@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 32.0), (2.0, 8.0)])
def test_yarn_is_yarn(
    width: int,
    base: float,
    train_length: int,
    factor: float,
    truncate: bool,
    slow: float,
    fast: float,
) -> None:
    turns = {"beta_fast": fast, "beta_slow": slow, "truncate": truncate}
    scale = {"factor": factor, "original_max_position_embeddings": train_length}
    peers = theirs("yarn", width, base, int(factor * train_length), **turns, **scale)
    ours = yarn(
        width,
        train_length,
        1,
        base=base,
        factor=factor,
        slow=slow,
        fast=fast,
        truncate=truncate,
    )
    assert_same(ours, peers)


@pytest.mark.parametrize(
    ("width", "train_length", "factor", "band", "times"),
    [(64, 512, 4.0, 10, 1.771), (128, 4096, 16.0, 38, 3.041)],
)
def test_yarn_of_transformers_is_not_the_papers(
    width: int, train_length: int, factor: float, band: int, times: float
) -> None:
    """Theirs is the authors' code, linear in the band's number, not eq. 18, linear in the turns."""
    scale = {"factor": factor, "original_max_position_embeddings": train_length}
    peers, _ = theirs("yarn", width, 1e4, int(factor * train_length), **scale)
    ratio = peers / yarn_paper(width, train_length, 1, factor=factor)[0]
    assert ratio.argmax() == band
    assert ratio[band].item() == pytest.approx(times, abs=1e-3)


def test_yarn_with_mscale_all_dim_has_no_temperature_on_cosines_and_ours_has() -> None:
    """DeepSeek's form: the ratio of two temperatures here, the rest on the scores elsewhere."""
    knobs = {"factor": 40.0, "original_max_position_embeddings": 4096}
    _, peers = theirs("yarn", 64, 1e4, 163_840, mscale=1.0, mscale_all_dim=1.0, **knobs)
    assert peers == 1
    assert yarn(64, 4096, 1, factor=40.0)[1] == pytest.approx(0.1 * math.log(40) + 1)


@cases
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 4.0), (0.5, 16.0)])
def test_llama3_is_by_parts(
    width: int, base: float, train_length: int, factor: float, slow: float, fast: float
) -> None:
    knobs = {"factor": factor, "original_max_position_embeddings": train_length}
    turns = {"low_freq_factor": slow, "high_freq_factor": fast}
    peers = theirs("llama3", width, base, int(factor * train_length) + 1, **turns, **knobs)
    ours = by_parts(width, train_length, 1, base=base, factor=factor, slow=slow, fast=fast)
    assert_same(ours, peers)


@pytest.mark.parametrize("width", [16, 64, 256])
@pytest.mark.parametrize("share", [0.25, 0.3, 0.75, 1.0])
def test_proportional_is_highest(width: int, share: float) -> None:
    peers = theirs("proportional", width, 1e6, 64, partial_rotary_factor=share)
    assert_same(highest(width, 64, 64, base=1e6, share=share), peers)


def test_proportional_divides_by_its_factor_and_ours_has_none() -> None:
    knobs = {"partial_rotary_factor": 0.25, "factor": 8.0}
    peers, magnitude = theirs("proportional", 64, 1e6, 64, **knobs)
    frequencies, _ = highest(64, 64, 64, base=1e6, share=0.25)
    assert_same((frequencies / 8, 1.0), (peers, magnitude))


@cases
def test_longrope_is_longrope(width: int, base: float, train_length: int, factor: float) -> None:
    short, long = (torch.rand(2, width // 2) * 4 + 1).tolist()
    knobs = {"factor": factor, "original_max_position_embeddings": train_length}
    lists = {"short_factor": short, "long_factor": long}
    for length in (1, train_length, train_length + 1, 4 * train_length):
        peers = theirs("longrope", width, base, 10**6, length=length, **lists, **knobs)
        made = {"base": base, "factor": factor, "short": short, "long": long}
        assert_same(longrope(width, train_length, length, **made), peers)


def test_longrope_of_transformers_is_not_the_papers() -> None:
    """Theirs slows the first positions too, and multiplies by what the paper does not have."""
    factors = torch.linspace(1, 4, 8).tolist()
    knobs = {"factor": 4.0, "original_max_position_embeddings": 64}
    lists = {"short_factor": [1.0] * 8, "long_factor": factors}
    rotary = LlamaRotaryEmbedding(config("longrope", 16, 1e4, 256, **lists, **knobs))
    pos, q = torch.arange(100), torch.randn(1, 1, 100, 16)
    peers, _ = apply_rotary_pos_emb(q, q, *rotary(q, pos[None]))
    shape = Geometry(width=16, heads=1, layers=1, train_length=64)
    paper = LongRope(shape, spectrum=geometric, factors=factors, unscaled=4)
    ours, _ = paper.rotate(q, q, q, pos)
    magnitude = math.sqrt(1 + math.log(4) / math.log(64))
    torch.testing.assert_close(peers[:, :, 4:], magnitude * ours[:, :, 4:], rtol=1e-4, atol=1e-4)
    assert (peers - magnitude * ours)[:, :, 1:4].abs().max() > 0.01


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "llama3"])
def test_partial_rotary_factor_is_a_spectrum_of_that_share_of_the_width(
    kind: str, share: float
) -> None:
    spectra = {"linear": interpolated, "dynamic": dynamic_ntk_hf, "yarn": yarn, "llama3": by_parts}
    knobs = {"factor": 2.0, "original_max_position_embeddings": 512, "partial_rotary_factor": share}
    turns = {"low_freq_factor": 1.0, "high_freq_factor": 32.0} if kind == "llama3" else {}
    peers = theirs(kind, 128, 1e4, 512, length=2048, **knobs, **turns)
    assert_same(spectra[kind](int(128 * share), 512, 2048, factor=2.0), peers)


ROTARIES: dict[str, tuple[dict[str, Any], Spectrum]] = {
    "default": ({}, geometric),
    "linear": ({"factor": 3.0}, partial(interpolated, factor=3.0)),
    "dynamic": ({"factor": 3.0}, partial(dynamic_ntk_hf, factor=3.0)),
    "yarn": ({"factor": 3.0}, partial(yarn, factor=3.0)),
    "longrope": (
        {"factor": 3.0, "short_factor": [1.0] * 16, "long_factor": [2.0] * 16},
        partial(longrope, factor=3.0, long=[2.0] * 16),
    ),
    "llama3": (
        {"factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        partial(by_parts, factor=3.0, fast=4.0),
    ),
    "proportional": ({"partial_rotary_factor": 0.5}, partial(highest, share=0.5)),
}


@pytest.mark.parametrize("kind", ROTARIES)
@pytest.mark.parametrize("length", [40, 100])
def test_llama_rotates_as_rope_with_every_rope_type(kind: str, length: int) -> None:
    """Within the training length of 64 and past it, the magnitude on cosine and sine included."""
    knobs, spectrum = ROTARIES[kind]
    original = {} if kind == "default" else {"original_max_position_embeddings": 64}
    rotary = LlamaRotaryEmbedding(config(kind, 32, 1e4, 64, **original, **knobs))
    encoding = Rope(Geometry(64, 2, 1, train_length=64), spectrum=spectrum)
    x, pos = torch.zeros(1, length, 64), torch.arange(length)
    q, k = torch.randn(2, 1, 2, length, 32)
    peers = apply_rotary_pos_emb(q, k, *rotary(x, pos[None]))
    for ours, peer in zip(encoding.rotate(x, q, k, pos), peers, strict=True):
        torch.testing.assert_close(ours, peer, rtol=1e-4, atol=1e-4)


def test_there_is_no_rope_type_that_is_not_compared() -> None:
    assert set(ROPE_INIT_FUNCTIONS) | {"default"} == set(ROTARIES)
