"""Trainable frequencies, and RoPE on a fraction of the channels."""

import cmath
import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from posenc.config.components import build
from posenc.config.paths import conf_dir, options
from posenc.encodings.base import Geometry
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import Spectrum, geometric, hope, p_rope, yarn
from posenc.model.build import build_model

LAYOUTS: list[Layout] = ["interleaved", "half"]
SINUSOIDAL_LAYOUTS: dict[Layout, Literal["interleaved", "concatenated"]] = {
    "interleaved": "interleaved",
    "half": "concatenated",
}
Configured = Callable[..., DictConfig]

POSITIONS = torch.tensor([0, 1, 24, 511, 16_000, 65_536, 99_999, 100_000])
SPECTRA = [geometric, partial(geometric, base=1e7), hope, yarn, partial(p_rope, fraction=0.5)]


def geometry(width: int, heads: int = 1, train_length: int = 32) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=train_length)


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def pairs(width: int, layout: Layout) -> list[tuple[int, int]]:
    if layout == "interleaved":
        return [(2 * i, 2 * i + 1) for i in range(width // 2)]
    return [(i, i + width // 2) for i in range(width // 2)]


def offset_parameter(encoding: Rope | Sinusoidal) -> nn.Parameter:
    actual = encoding.sinusoids.offset
    assert actual is not None
    return actual


def encoded(encoding: Rope | Sinusoidal, x: Tensor, pos: Tensor) -> Tensor:
    """Return x [B, H, T, d] after rotation or addition of the embedding."""
    return (
        encoding.rotate(x, x, x, pos)[0] if isinstance(encoding, Rope) else encoding.embed(x, pos)
    )


@pytest.mark.parametrize("name", sorted(options("encoding/spectrum")))
def test_trainable_frequencies_initially_equal_the_fixed_ones(name: str) -> None:
    """They are equal to the last bit up to position 100,000, also for a module in bfloat16."""
    node = OmegaConf.load(conf_dir() / f"encoding/spectrum/{name}.yaml")
    assert isinstance(node, DictConfig)
    spectrum = build(node, name="encoding.spectrum")
    for make in (Rope, Sinusoidal):
        fixed = make(geometry(64), spectrum=spectrum)
        trainable = make(geometry(64), spectrum=spectrum, trainable=True)
        assert [p.numel() for p in fixed.parameters()] == []
        assert [p.numel() for p in trainable.parameters()] == [32]
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = randn(2, 1, len(POSITIONS), 64).to(dtype)
            expected = encoded(fixed, x, POSITIONS)
            assert torch.equal(encoded(trainable.float(), x, POSITIONS), expected)
            assert torch.equal(encoded(trainable.bfloat16(), x, POSITIONS), expected)


@pytest.mark.parametrize("encoding", ["rope", "sinusoidal"])
@pytest.mark.parametrize("spectrum", ["geometric", "hope", "yarn"])
def test_the_gradient_of_the_loss_matches_finite_differences(
    encoding: str, spectrum: str, configured: Configured
) -> None:
    """The loss is that of a whole model, whose frequencies may be zero."""
    config = configured(
        f"encoding={encoding}", f"encoding/spectrum={spectrum}", "encoding.trainable=true"
    )
    model = build_model(config, 50).double()
    assert isinstance(model.encoding, Rope | Sinusoidal)
    offset = offset_parameter(model.encoding)
    generator = torch.Generator().manual_seed(0)
    tokens, targets = torch.randint(0, 50, (2, 2, 24), generator=generator)
    start = 1e-3 * randn(len(offset))  # breaks symmetries

    def loss(value: Tensor) -> Tensor:
        offset.data = value
        return model.losses(tokens, targets).mean()

    (gradient,) = torch.autograd.grad(loss(start), offset)
    assert (gradient != 0).all()
    for pair in range(len(offset)):
        step = torch.zeros_like(start)
        step[pair] = 1e-6
        expected = (loss(start + step) - loss(start - step)).item() / 2e-6
        assert gradient[pair].item() == pytest.approx(expected, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_offset_adds_to_ropes_frequencies(
    spectrum: Spectrum, axes: int, layout: Layout
) -> None:
    """With complex numbers; the gradient of g . R x is the real part of m g* i x exp(i m f)."""
    width, part = 24, 24 // axes
    encoding = Rope(geometry(width), spectrum=spectrum, layout=layout, trainable=True).double()
    offset = offset_parameter(encoding)
    offset.data = randn(width // 2, seed=3) * 0.1
    x, grad_out = randn(1, 1, len(POSITIONS), width), randn(1, 1, len(POSITIONS), width, seed=1)
    coordinates = torch.stack([POSITIONS.double() / (axis + 1) for axis in range(axes)], dim=-1)
    pos = POSITIONS if axes == 1 else coordinates[None]
    actual = encoded(encoding, x, pos)
    (gradient,) = torch.autograd.grad((actual * grad_out).sum(), offset)
    plain, magnitude = spectrum(part, 32, len(POSITIONS))
    expected, expected_gradient = torch.empty_like(x), torch.zeros_like(offset)
    for row in range(len(POSITIONS)):
        vector, weight = x[0, 0, row].tolist(), grad_out[0, 0, row].tolist()
        for axis in range(axes):
            m = coordinates[row, axis].item()
            for i, (a, b) in enumerate(pairs(part, layout)):
                a, b, pair = a + axis * part, b + axis * part, i + axis * part // 2
                f = plain[i].item() + offset[pair].item()
                rotated = magnitude * complex(vector[a], vector[b]) * cmath.exp(1j * m * f)
                expected[0, 0, row, a], expected[0, 0, row, b] = rotated.real, rotated.imag
                expected_gradient[pair] += (complex(weight[a], -weight[b]) * 1j * m * rotated).real
    torch.testing.assert_close(actual.detach(), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradient, expected_gradient.detach(), rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_offset_adds_to_sinusoidal_frequencies(
    spectrum: Spectrum, axes: int, layout: Layout
) -> None:
    """With a float32 offset, as in training, angles are still computed in float64."""
    width, part = 16, 16 // axes
    encoding = Sinusoidal(
        geometry(width), spectrum=spectrum, layout=SINUSOIDAL_LAYOUTS[layout], trainable=True
    )
    offset = offset_parameter(encoding)
    offset.data = (randn(width // 2, seed=3) * 0.1).float()
    coordinates = torch.stack([POSITIONS.double() / (axis + 1) for axis in range(axes)], dim=-1)
    actual = encoding.embed(
        torch.zeros(1, len(POSITIONS), width), POSITIONS if axes == 1 else coordinates[None]
    )
    plain, _ = spectrum(part, 32, len(POSITIONS))  # the attention factor scales only scores
    for row in range(len(POSITIONS)):
        for axis in range(axes):
            for i, (sin, cos) in enumerate(pairs(part, layout)):
                f = plain[i].item() + offset[i + axis * part // 2].item()
                angle = coordinates[row, axis].item() * f
                channels = actual[0, row, axis * part : axis * part + part].tolist()
                assert channels[sin] == pytest.approx(math.sin(angle), abs=1e-6)
                assert channels[cos] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("width", "heads", "fraction", "base"),
    [
        (16, 6, 0.5, 1e4),
        (20, 12, 0.3, 10.0),
        (64, 20, 0.25, 1e4),
        (256, 6, 0.125, 1e7),
        (96, 1, 0.75, 500.0),
        (64, 2, 0.98, 1e4),
        (10, 1, 0.2, 1e4),
    ],
)
@pytest.mark.parametrize("trainable", [False, True])
def test_partial_rope_spaces_its_frequencies_over_the_rotated_channels(
    width: int, heads: int, fraction: float, base: float, layout: Layout, trainable: bool
) -> None:
    rotary_dim = math.floor(fraction * width + 1e-9)
    encoding = Rope(
        geometry(width * heads, heads),
        spectrum=partial(geometric, base=base),
        layout=layout,
        rotary_fraction=fraction,
        trainable=trainable,
    ).double()
    offset_values = torch.zeros(rotary_dim // 2).double()
    if trainable:
        offset_values = randn(rotary_dim // 2, seed=4) * 0.01
        offset_parameter(encoding).data = offset_values
    x = randn(1, heads, 3, width)
    actual = encoded(encoding, x, torch.tensor([1, 777, 100_000])).detach()
    assert torch.equal(actual[..., rotary_dim:], x[..., rotary_dim:])
    for row, m in enumerate([1, 777, 100_000]):
        for i, (a, b) in enumerate(pairs(rotary_dim, layout)):
            f = base ** (-2 * i / rotary_dim) + offset_values[i].item()
            for head in range(heads):
                number = complex(x[0, head, row, a], x[0, head, row, b]) * cmath.exp(1j * m * f)
                assert actual[0, head, row, a].item() == pytest.approx(number.real, abs=1e-9)
                assert actual[0, head, row, b].item() == pytest.approx(number.imag, abs=1e-9)


def test_frequencies_of_partial_rope_and_p_rope_match_golden_values() -> None:
    """Of d=64, partial RoPE rotates the first 16 channels; p-RoPE keeps the first 8 frequencies."""
    partial_rope_sinusoids = Rope(geometry(64), spectrum=geometric, rotary_fraction=0.25).sinusoids
    actual, _ = partial_rope_sinusoids.frequencies(1, 1, torch.device("cpu"))
    expected = [1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766]
    assert actual.flatten().tolist() == pytest.approx(expected, rel=1e-8)
    p_rope_sinusoids = Rope(geometry(64), spectrum=partial(p_rope, fraction=0.25)).sinusoids
    actual, _ = p_rope_sinusoids.frequencies(1, 1, torch.device("cpu"))
    assert actual[0, 7].item() == pytest.approx(0.1333521432, rel=1e-8)
    assert (actual[0, 8:] == 0).all() and actual.shape == (1, 32)


@pytest.mark.parametrize(
    ("width", "fraction", "message"),
    [
        (10, 0.3, "is 3;"),
        (64, 0.01, "is 0;"),
        (64, 0.02, "is 1;"),
        (15, 1.0, "is 15;"),
        (64, 0.0, "rotary_fraction=0.0"),
        (64, -0.5, "rotary_fraction=-0.5"),
        (64, 1.5, "rotary_fraction=1.5"),
    ],
)
def test_fractions_that_do_not_give_whole_pairs_are_rejected(
    width: int, fraction: float, message: str
) -> None:
    with pytest.raises(ValueError, match=f"even number of channels, but .*{message}"):
        Rope(geometry(width), spectrum=geometric, rotary_fraction=fraction)
