"""Frequencies that are trained, and rotation of a part of the channels."""

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
from posenc.encodings.rope import Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import Spectrum, geometric, highest, hope, yarn
from posenc.model.build import build_model

Layout = Literal["interleaved", "concatenated"]
LAYOUTS: list[Layout] = ["interleaved", "concatenated"]
Configured = Callable[..., DictConfig]

FAR = torch.tensor([0, 1, 24, 511, 16_000, 65_536, 99_999, 100_000])
SPECTRA = [geometric, partial(geometric, base=1e7), hope, yarn, partial(highest, share=0.5)]


def geometry(width: int, heads: int = 1, train_length: int = 32) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=train_length)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def pairs(width: int, layout: Layout) -> list[tuple[int, int]]:
    if layout == "interleaved":
        return [(2 * i, 2 * i + 1) for i in range(width // 2)]
    return [(i, i + width // 2) for i in range(width // 2)]


def offset_of(encoding: Rope | Sinusoidal) -> nn.Parameter:
    found = encoding.waves.offset
    assert found is not None
    return found


def values(encoding: Rope | Sinusoidal, x: Tensor, pos: Tensor) -> Tensor:
    """What becomes of x [B, H, T, d], by rotation or by addition of a code."""
    return (
        encoding.rotate(x, x, x, pos)[0] if isinstance(encoding, Rope) else encoding.embed(x, pos)
    )


@pytest.mark.parametrize("name", sorted(options("encoding/spectrum")))
def test_trained_frequencies_start_as_the_fixed_ones(name: str) -> None:
    """To the last bit, to position 100,000, also where the module is in bfloat16."""
    node = OmegaConf.load(conf_dir() / f"encoding/spectrum/{name}.yaml")
    assert isinstance(node, DictConfig)
    spectrum = build(node, name="encoding.spectrum")
    for make in (Rope, Sinusoidal):
        fixed = make(geometry(64), spectrum=spectrum)
        trained = make(geometry(64), spectrum=spectrum, trainable=True)
        assert [p.numel() for p in fixed.parameters()] == []
        assert [p.numel() for p in trained.parameters()] == [32]
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = drawn(2, 1, len(FAR), 64).to(dtype)
            wanted = values(fixed, x, FAR)
            assert torch.equal(values(trained.float(), x, FAR), wanted)
            assert torch.equal(values(trained.bfloat16(), x, FAR), wanted)


@pytest.mark.parametrize("encoding", ["rope", "sinusoidal"])
@pytest.mark.parametrize("spectrum", ["geometric", "hope", "yarn"])
def test_the_gradient_is_that_of_the_loss(
    encoding: str, spectrum: str, configured: Configured
) -> None:
    """Of a whole model, against central differences, also for the bands that stand still."""
    config = configured(
        f"encoding={encoding}", f"encoding/spectrum={spectrum}", "encoding.trainable=true"
    )
    model = build_model(config, 50).double()
    assert isinstance(model.encoding, Rope | Sinusoidal)
    offset = offset_of(model.encoding)
    generator = torch.Generator().manual_seed(0)
    tokens, targets = torch.randint(0, 50, (2, 2, 24), generator=generator)
    place = 1e-3 * drawn(len(offset))  # of no symmetry

    def loss(at: Tensor) -> Tensor:
        offset.data = at
        return model.losses(tokens, targets).mean()

    (gradient,) = torch.autograd.grad(loss(place), offset)
    assert (gradient != 0).all()
    for band in range(len(offset)):
        step = torch.zeros_like(place)
        step[band] = 1e-6
        wanted = (loss(place + step) - loss(place - step)).item() / 2e-6
        assert gradient[band].item() == pytest.approx(wanted, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_an_offset_adds_to_ropes_frequencies(spectrum: Spectrum, axes: int, layout: Layout) -> None:
    """In complex numbers; the gradient of up . R x is m up* i x exp(i m f), from its real part."""
    width, share = 24, 24 // axes
    encoding = Rope(geometry(width), spectrum=spectrum, layout=layout, trainable=True).double()
    offset = offset_of(encoding)
    offset.data = drawn(width // 2, seed=3) * 0.1
    x, up = drawn(1, 1, len(FAR), width), drawn(1, 1, len(FAR), width, seed=1)
    coordinates = torch.stack([FAR.double() / (axis + 1) for axis in range(axes)], dim=-1)
    pos = FAR if axes == 1 else coordinates[None]
    found = values(encoding, x, pos)
    (gradient,) = torch.autograd.grad((found * up).sum(), offset)
    plain, magnitude = spectrum(share, 32, len(FAR))
    wanted, slope = torch.empty_like(x), torch.zeros_like(offset)
    for row in range(len(FAR)):
        vector, weight = x[0, 0, row].tolist(), up[0, 0, row].tolist()
        for axis in range(axes):
            m = coordinates[row, axis].item()
            for i, (a, b) in enumerate(pairs(share, layout)):
                a, b, band = a + axis * share, b + axis * share, i + axis * share // 2
                f = plain[i].item() + offset[band].item()
                turned = magnitude * complex(vector[a], vector[b]) * cmath.exp(1j * m * f)
                wanted[0, 0, row, a], wanted[0, 0, row, b] = turned.real, turned.imag
                slope[band] += (complex(weight[a], -weight[b]) * 1j * m * turned).real
    torch.testing.assert_close(found.detach(), wanted, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradient, slope.detach(), rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_an_offset_adds_to_the_sinusoids_frequencies(
    spectrum: Spectrum, axes: int, layout: Layout
) -> None:
    """With an offset in float32, as it is trained, the angles are still those of float64."""
    width, share = 16, 16 // axes
    encoding = Sinusoidal(geometry(width), spectrum=spectrum, layout=layout, trainable=True)
    offset = offset_of(encoding)
    offset.data = (drawn(width // 2, seed=3) * 0.1).float()
    coordinates = torch.stack([FAR.double() / (axis + 1) for axis in range(axes)], dim=-1)
    found = encoding.embed(torch.zeros(1, len(FAR), width), FAR if axes == 1 else coordinates[None])
    plain, magnitude = spectrum(share, 32, len(FAR))
    for row in range(len(FAR)):
        for axis in range(axes):
            for i, (sin, cos) in enumerate(pairs(share, layout)):
                f = plain[i].item() + offset[i + axis * share // 2].item()
                angle = coordinates[row, axis].item() * f
                channels = found[0, row, axis * share : axis * share + share].tolist()
                assert channels[sin] == pytest.approx(magnitude * math.sin(angle), abs=1e-6)
                assert channels[cos] == pytest.approx(magnitude * math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("width", "heads", "share", "base"),
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
def test_partial_rotation_spaces_its_frequencies_over_its_part(
    width: int, heads: int, share: float, base: float, layout: Layout, trainable: bool
) -> None:
    part = math.floor(share * width + 1e-9)
    encoding = Rope(
        geometry(width * heads, heads),
        spectrum=partial(geometric, base=base),
        layout=layout,
        share=share,
        trainable=trainable,
    ).double()
    step = torch.zeros(part // 2).double()
    if trainable:
        step = drawn(part // 2, seed=4) * 0.01
        offset_of(encoding).data = step
    x = drawn(1, heads, 3, width)
    found = values(encoding, x, torch.tensor([1, 777, 100_000])).detach()
    assert torch.equal(found[..., part:], x[..., part:])
    for row, m in enumerate([1, 777, 100_000]):
        for i, (a, b) in enumerate(pairs(part, layout)):
            f = base ** (-2 * i / part) + step[i].item()
            for head in range(heads):
                number = complex(x[0, head, row, a], x[0, head, row, b]) * cmath.exp(1j * m * f)
                assert found[0, head, row, a].item() == pytest.approx(number.real, abs=1e-9)
                assert found[0, head, row, b].item() == pytest.approx(number.imag, abs=1e-9)


def test_partial_rotation_golden_frequencies_are_not_those_of_p_rope() -> None:
    """d=64, a quarter: 16 channels of their own spacing, or 8 pairs of 32 with theirs."""
    own = Rope(geometry(64), spectrum=geometric, share=0.25).waves
    found, _ = own.frequencies(1, 1, torch.device("cpu"))
    wanted = [1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766]
    assert found.flatten().tolist() == pytest.approx(wanted, rel=1e-8)
    whole = Rope(geometry(64), spectrum=partial(highest, share=0.25)).waves
    found, _ = whole.frequencies(1, 1, torch.device("cpu"))
    assert found[0, 7].item() == pytest.approx(0.1333521432, rel=1e-8)
    assert (found[0, 8:] == 0).all() and found.shape == (1, 32)


@pytest.mark.parametrize(
    ("width", "share", "says"),
    [
        (10, 0.3, "is 3;"),
        (64, 0.01, "is 0;"),
        (64, 0.02, "is 1;"),
        (15, 1.0, "is 15;"),
        (64, 0.0, "share=0.0"),
        (64, -0.5, "share=-0.5"),
        (64, 1.5, "share=1.5"),
    ],
)
def test_channels_that_make_no_pairs_are_refused(width: int, share: float, says: str) -> None:
    with pytest.raises(ValueError, match=f"even number of channels, but .*{says}"):
        Rope(geometry(width), spectrum=geometric, share=share)
