"""Coordinates on several axes: the axes split the channels; biases use Euclidean distances."""

import cmath
import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention import blocks
from posenc.attention.choice import kernel_function
from posenc.attention.reference import pairwise_distances
from posenc.config.paths import options
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.fire import Fire
from posenc.encodings.integers import Binary, Integers, ScaledIntegers
from posenc.encodings.kerple import KerpleLog, KerplePower
from posenc.encodings.learned import Learned
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import Spectrum, dynamic_ntk, geometric, hope, yarn
from posenc.encodings.t5 import T5
from posenc.model.build import build_model

LAYOUTS: list[Layout] = ["interleaved", "half"]
SINUSOIDAL_LAYOUTS: dict[Layout, Literal["interleaved", "concatenated"]] = {
    "interleaved": "interleaved",
    "half": "concatenated",
}
Configured = Callable[..., DictConfig]


def geometry(width: int, heads: int = 1) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=32)


def geometric_with(base: float) -> Spectrum:
    return partial(geometric, base=base)


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def points(batch: int, length: int, axes: int, largest: float = 300.0) -> Tensor:
    """Return non-integer coordinates, different for each sequence of the batch."""
    return randn(batch, length, axes, seed=9) * largest


def pairs(width: int, layout: Layout) -> list[tuple[int, int]]:
    if layout == "interleaved":
        return [(2 * i, 2 * i + 1) for i in range(width // 2)]
    return [(i, i + width // 2) for i in range(width // 2)]


def rotated(x: list[float], point: list[float], base: float, layout: Layout) -> list[float]:
    """Rotate one vector axis by axis, with Python's complex numbers."""
    part = len(x) // len(point)
    out = [0.0] * len(x)
    for axis, coordinate in enumerate(point):
        for i, (a, b) in enumerate(pairs(part, layout)):
            a, b = a + axis * part, b + axis * part
            number = complex(x[a], x[b]) * cmath.exp(1j * coordinate * base ** (-2 * i / part))
            out[a], out[b] = number.real, number.imag
    return out


def map_vectors(
    x: Tensor, pos: Tensor, rotate: Callable[[list[float], list[float]], list[float]]
) -> Tensor:
    """Apply `rotate` to every vector of x [B, H, T, d] and its point of pos [B, T, axes]."""
    batch, heads, length = x.shape[:3]
    rows = [
        rotate(x[b, h, t].tolist(), pos[b, t].tolist())
        for b in range(batch)
        for h in range(heads)
        for t in range(length)
    ]
    return torch.tensor(rows, dtype=torch.float64).view(x.shape)


CASES = [(8, 2, 10.0), (48, 2, 1e4), (24, 3, 1e4), (64, 4, 1e7), (256, 2, 500.0), (16, 8, 100.0)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("width", "axes", "base"), CASES)
def test_rope_rotates_each_part_of_the_channels_with_its_axis(
    width: int, axes: int, base: float, layout: Layout
) -> None:
    """Values and gradients; the adjoint of a rotation is its inverse."""
    encoding = Rope(geometry(2 * width, heads=2), spectrum=geometric_with(base), layout=layout)
    pos = points(2, 4, axes)
    q, k, grad_out = (randn(2, 2, 4, width, seed=seed) for seed in range(3))
    q.requires_grad_()
    rotated_q, rotated_k = encoding.rotate(randn(2, 4, 2 * width), q, k, pos)
    rotate = partial(rotated, base=base, layout=layout)
    torch.testing.assert_close(rotated_q.detach(), map_vectors(q, pos, rotate), rtol=0, atol=1e-10)
    torch.testing.assert_close(rotated_k, map_vectors(k, pos, rotate), rtol=0, atol=1e-10)
    (gradient,) = torch.autograd.grad((rotated_q * grad_out).sum(), q)
    torch.testing.assert_close(gradient, map_vectors(grad_out, -pos, rotate), rtol=0, atol=1e-10)
    in_float32, _ = encoding.rotate(randn(2, 4, 2 * width), q.float(), k.float(), pos)
    assert in_float32.dtype == torch.float32
    torch.testing.assert_close(in_float32.double(), rotated_q, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("width", "axes", "base"), CASES)
def test_sinusoidal_embeds_each_axis_in_its_part_of_the_channels(
    width: int, axes: int, base: float, layout: Layout
) -> None:
    encoding = Sinusoidal(
        geometry(width), spectrum=geometric_with(base), layout=SINUSOIDAL_LAYOUTS[layout]
    )
    x, pos = randn(2, 4, width), points(2, 4, axes)
    part = width // axes
    expected = x.clone()
    for b in range(2):
        for t in range(4):
            for axis in range(axes):
                for i, (sin, cos) in enumerate(pairs(part, layout)):
                    angle = pos[b, t, axis].item() * base ** (-2 * i / part)
                    expected[b, t, axis * part + sin] += math.sin(angle)
                    expected[b, t, axis * part + cos] += math.cos(angle)
    torch.testing.assert_close(encoding.embed(x, pos), expected, rtol=0, atol=1e-10)
    in_float32 = encoding.embed(x.float(), pos)
    torch.testing.assert_close(in_float32.double(), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spectrum", [geometric, yarn, hope, dynamic_ntk])
def test_several_axes_are_block_diagonal_copies_of_one(spectrum: Spectrum, layout: Layout) -> None:
    """The result equals encodings of width d / axes side by side, for any spectrum."""
    x, pos = randn(2, 1, 50, 36), points(2, 50, 3)
    whole, _ = Rope(geometry(36), spectrum=spectrum, layout=layout).rotate(x, x, x, pos)
    single_rope = Rope(geometry(12), spectrum=spectrum, layout=layout)
    sinusoidal_layout = SINUSOIDAL_LAYOUTS[layout]
    sinusoidal = Sinusoidal(geometry(36), spectrum=spectrum, layout=sinusoidal_layout)
    embedding = sinusoidal.position_embedding(pos, torch.float64)
    single_sinusoidal = Sinusoidal(geometry(12), spectrum=spectrum, layout=sinusoidal_layout)
    for b in range(2):
        for axis in range(3):
            part, axis_pos = slice(12 * axis, 12 * axis + 12), pos[b, :, axis]
            channels = x[b, None, :, :, part]
            expected, _ = single_rope.rotate(x, channels, channels, axis_pos)
            torch.testing.assert_close(whole[b, None, :, :, part], expected, rtol=0, atol=1e-12)
            expected = single_sinusoidal.position_embedding(axis_pos, torch.float64)
            torch.testing.assert_close(embedding[b, :, part], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_axes_do_not_mix(layout: Layout) -> None:
    """A coordinate changes all channels of its axis and no others."""
    rope = Rope(geometry(24), spectrum=geometric, layout=layout)
    sinusoidal = Sinusoidal(geometry(24), spectrum=geometric, layout=SINUSOIDAL_LAYOUTS[layout])
    x, pos = randn(1, 1, 5, 24), points(1, 5, 3)
    for axis in range(3):
        other = pos.clone()
        other[..., axis] += 1.5
        for before, after in [
            (rope.rotate(x, x, x, pos)[0], rope.rotate(x, x, x, other)[0]),
            (sinusoidal.embed(x[0], pos), sinusoidal.embed(x[0], other)),
        ]:
            changed = (before != after).flatten(0, -2)
            assert changed[:, 8 * axis : 8 * axis + 8].all()
            assert changed.sum() == changed.shape[0] * 8


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rope_scores_depend_on_the_difference_along_each_axis(axes: int, layout: Layout) -> None:
    encoding = Rope(geometry(24), spectrum=geometric_with(100.0), layout=layout)
    q, k, pos = randn(1, 1, 6, 24), randn(1, 1, 6, 24, seed=1), points(1, 6, axes, 20.0)

    def scores(pos: Tensor) -> Tensor:
        rotated_q, rotated_k = encoding.rotate(q, q, k, pos)
        return rotated_q @ rotated_k.mT

    unshifted = scores(pos)
    for axis in range(axes):
        step = torch.zeros(axes).double()
        step[axis] = 12_345.5
        torch.testing.assert_close(scores(pos + step), unshifted, rtol=0, atol=1e-9)
        stretched = pos.clone()
        stretched[..., axis] *= 2
        assert (scores(stretched) - unshifted).abs().max() > 0.01


@pytest.mark.parametrize("name", ["rope", "sinusoidal"])
def test_every_sequence_of_a_batch_has_its_own_coordinates(
    name: str, configured: Configured
) -> None:
    model = build_model(configured(f"encoding={name}"), 50).double()
    tokens = torch.randint(0, 50, (3, 10), generator=torch.Generator().manual_seed(0))
    pos = points(3, 10, 2)
    together = model(tokens, pos)
    for b in range(3):
        alone = model(tokens[b : b + 1], pos[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone, rtol=0, atol=1e-12)
    assert (model(tokens, pos.flip(0)) - together).abs().amax(dim=(1, 2))[[0, 2]].min() > 1e-3


@pytest.mark.parametrize(
    ("make", "axes", "width"),
    [
        (Rope, 3, 32),
        (Rope, 32, 32),
        (Rope, 5, 32),
        (partial(Rope, rotary_fraction=0.25), 8, 32),
        (Sinusoidal, 3, 32),
        (Sinusoidal, 7, 64),
    ],
)
def test_widths_that_cannot_be_split_between_the_axes_are_rejected(
    make: Callable[..., Encoding], axes: int, width: int
) -> None:
    encoding = make(geometry(width), spectrum=geometric)
    x, pos = randn(1, 3, width), points(1, 3, axes)
    rotary_dim = 8 if isinstance(make, partial) else width
    with pytest.raises(ValueError, match=rf"width of {rotary_dim} .* for {axes} axes"):
        encoding.rotate(encoding.embed(x, pos), x[:, None], x[:, None], pos)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("fraction", "axes"), [(0.5, 2), (0.25, 1), (0.75, 3), (0.375, 3)])
def test_partial_rotation_splits_its_channels_between_the_axes(
    fraction: float, axes: int, layout: Layout
) -> None:
    """Only the first channels rotate; the spectrum of an axis spans its part of their width."""
    encoding = Rope(
        geometry(48), spectrum=geometric_with(1e4), layout=layout, rotary_fraction=fraction
    )
    width = round(fraction * 48)
    x, pos = randn(2, 1, 4, 48), points(2, 4, axes)
    actual, _ = encoding.rotate(randn(2, 4, 48), x, x, pos)
    assert torch.equal(actual[..., width:], x[..., width:])
    expected = map_vectors(x[..., :width], pos, partial(rotated, base=1e4, layout=layout))
    torch.testing.assert_close(actual[..., :width], expected, rtol=0, atol=1e-10)


def alibi_bias(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    """Slopes of six heads: the four slopes of four heads, then two of the slopes of eight heads."""
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    return -slopes.double()[:, None, None] * distance


def trainable_alibi_bias(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    assert isinstance(encoding, Alibi) and isinstance(encoding.slopes, Tensor)
    return -encoding.slopes.double()[:, None, None] * distance


def kerple_log_bias(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    assert isinstance(encoding, KerpleLog)
    r1, r2 = (r.double()[:, None, None] for r in (encoding.r1, encoding.r2))
    return -r1 * (1 + r2 * distance).log()


def kerple_power_bias(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    assert isinstance(encoding, KerplePower)
    r1, r2 = (r.double()[:, None, None] for r in (encoding.r1, encoding.r2))
    return -r1 * distance**r2


def t5_bias(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    """The bucket is the floor of the distance below 16 and logarithmic beyond."""
    assert isinstance(encoding, T5)
    rows = []
    for value in distance.flatten().tolist():
        row = math.floor(value)
        if row >= 16:
            row = min(16 + math.floor(math.log(value / 16) / math.log(128 / 16) * 16), 31)
        rows.append(encoding.table[row].double())
    return torch.stack(rows).T.unflatten(1, distance.shape)


def fire_bias(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    """Divide by psi of the query's norm, or of the threshold if that is larger."""
    assert isinstance(encoding, Fire)
    fire = encoding.double()
    threshold = (fire.multiplier * fire.init_threshold).abs()
    largest = torch.maximum(query.norm(dim=-1), threshold)[:, None]
    relative = (fire.c * distance).abs().add(1).log() / (
        (fire.c * largest).abs().add(1).log() + 1e-6
    )
    return fire.second(fire.first(relative[..., None]).relu()).permute(2, 0, 1)


BIASES = [
    (Alibi, alibi_bias),
    (partial(Alibi, trainable=True), trainable_alibi_bias),
    (KerpleLog, kerple_log_bias),
    (KerplePower, kerple_power_bias),
    (T5, t5_bias),
    (partial(Fire, init_threshold=20.0), fire_bias),
]
BIAS_NAMES = ["alibi", "trainable alibi", "kerple_log", "kerple_power", "t5", "fire"]


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("name", ["reference", "auto"])
@pytest.mark.parametrize(("make", "definition"), BIASES, ids=BIAS_NAMES)
def test_biases_depend_on_the_euclidean_distance(
    make: Callable[..., Encoding],
    definition: Callable[[Encoding, Tensor, Tensor], Tensor],
    name: str,
    axes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values, gradients and float32; kernels with blocks process 16 of the 45 points at a time."""
    monkeypatch.setattr(blocks, "ROW_LIMITS", (16, 16))
    torch.manual_seed(0)
    encoding = make(geometry(24, heads=6)).double()
    pos = points(2, 45, axes, 20.0)
    x, grad_out = randn(2, 45, 24), randn(2, 6, 45, 4, seed=5)
    q, k, v = (randn(2, 6, 45, 4, seed=seed).requires_grad_() for seed in (1, 2, 3))
    parameters = [q, k, v, *encoding.parameters()]
    actual = kernel_function(name)(encoding, x, q, k, v, pos)
    expected = []
    for b in range(2):
        rows = pos[b].tolist()
        distance = torch.tensor(
            [[math.dist(m, n) for n in rows] for m in rows], dtype=torch.float64
        )
        scores = q[b] @ k[b].mT / 2 + definition(encoding, distance, pos[b])
        later = torch.ones(45, 45, dtype=torch.bool).triu(1)
        expected.append(scores.masked_fill(later, -math.inf).softmax(dim=-1) @ v[b])
    torch.testing.assert_close(actual, torch.stack(expected), rtol=0, atol=1e-10)
    gradients = torch.autograd.grad((actual * grad_out).sum(), parameters)
    expected_gradients = torch.autograd.grad((torch.stack(expected) * grad_out).sum(), parameters)
    for gradient, oracle in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, oracle, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        in_float32 = kernel_function(name)(
            encoding.float(), x.float(), q.float(), k.float(), v.float(), pos
        )
    torch.testing.assert_close(in_float32.double(), actual.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_distances_of_large_coordinates_are_precise_in_float32(axes: int) -> None:
    """They are computed in float64: at 100,000 float32 has a resolution of 0.008."""
    near = points(2, 45, axes, 20.0)
    far = near + 100_000
    actual = pairwise_distances(far, far, torch.float32)
    assert actual.dtype == torch.float32 and actual.shape == (2, 1, 45, 45)
    rows = near.tolist()
    expected = torch.tensor([[[math.dist(m, n) for n in rows[b]] for m in rows[b]] for b in (0, 1)])
    torch.testing.assert_close(actual[:, 0], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", sorted(options("encoding")))
def test_every_encoding_takes_coordinates_or_rejects_them(
    name: str, configured: Configured
) -> None:
    """An encoding that takes two axes also takes one, with the same result as for positions."""
    model = build_model(configured(f"encoding={name}", "model.layers=4"), 50).double().eval()
    tokens = torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(0))
    try:
        out = model(tokens, points(2, 24, 2, 8.0))
    except ValueError as error:
        assert f"{name} takes" in str(error) and "coordinates" in str(error)
    else:
        assert out.shape == (2, 24, 50) and out.isfinite().all()
        pos = torch.arange(24)
        one_axis = model(tokens, pos[None, :, None].expand(2, -1, -1))
        torch.testing.assert_close(one_axis, model(tokens, pos), rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [Learned, Integers, ScaledIntegers, Binary])
def test_encodings_of_sequence_order_reject_coordinates(make: type[Encoding]) -> None:
    with pytest.raises(ValueError, match=r"takes .* 2 axes"):
        make(geometry(32)).embed(randn(2, 24, 32), points(2, 24, 2))


def test_a_position_beyond_the_table_is_named_in_the_error() -> None:
    encoding = Learned(Geometry(width=8, heads=2, layers=1, train_length=4))
    with pytest.raises(ValueError, match=r"position 9 is beyond .*max_length=4"):
        encoding.embed(torch.zeros(1, 2, 8), torch.tensor([0, 9]))
