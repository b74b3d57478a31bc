"""Coordinates of several axes: rotary and sinusoidal share their width, biases take a norm."""

import cmath
import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention import blocks, kernel
from posenc.attention.scores import distances
from posenc.config.paths import options
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.fire import Fire
from posenc.encodings.kerple import KerpleLog, KerplePower
from posenc.encodings.ladder import Binary, Integers, ScaledIntegers
from posenc.encodings.learned import Learned
from posenc.encodings.rope import Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import Spectrum, dynamic_ntk, geometric, hope, yarn
from posenc.encodings.t5 import T5
from posenc.model.build import build_model

Layout = Literal["interleaved", "concatenated"]
LAYOUTS: list[Layout] = ["interleaved", "concatenated"]
Configured = Callable[..., DictConfig]


def geometry(width: int, heads: int = 1) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=32)


def of_base(base: float) -> Spectrum:
    return partial(geometric, base=base)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def points(batch: int, length: int, axes: int, largest: float = 300.0) -> Tensor:
    """Coordinates that are no integers, another set for each of the batch."""
    return drawn(batch, length, axes, seed=9) * largest


def pairs(width: int, layout: Layout) -> list[tuple[int, int]]:
    if layout == "interleaved":
        return [(2 * i, 2 * i + 1) for i in range(width // 2)]
    return [(i, i + width // 2) for i in range(width // 2)]


def turned(x: list[float], point: list[float], base: float, layout: Layout) -> list[float]:
    """One vector, turned axis by axis in Python's complex numbers."""
    share = len(x) // len(point)
    out = [0.0] * len(x)
    for axis, coordinate in enumerate(point):
        for i, (a, b) in enumerate(pairs(share, layout)):
            a, b = a + axis * share, b + axis * share
            number = complex(x[a], x[b]) * cmath.exp(1j * coordinate * base ** (-2 * i / share))
            out[a], out[b] = number.real, number.imag
    return out


def every(
    x: Tensor, pos: Tensor, turn: Callable[[list[float], list[float]], list[float]]
) -> Tensor:
    """`turn` of every vector of x [B, H, T, d] and its point of pos [B, T, axes]."""
    batch, heads, length = x.shape[:3]
    rows = [
        turn(x[b, h, t].tolist(), pos[b, t].tolist())
        for b in range(batch)
        for h in range(heads)
        for t in range(length)
    ]
    return torch.tensor(rows, dtype=torch.float64).view(x.shape)


CASES = [(8, 2, 10.0), (48, 2, 1e4), (24, 3, 1e4), (64, 4, 1e7), (256, 2, 500.0), (16, 8, 100.0)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("width", "axes", "base"), CASES)
def test_rope_turns_each_axis_share_with_that_axis(
    width: int, axes: int, base: float, layout: Layout
) -> None:
    """Values and gradients; the adjoint of a rotation is the one back."""
    encoding = Rope(geometry(2 * width, heads=2), spectrum=of_base(base), layout=layout)
    pos = points(2, 4, axes)
    q, k, up = (drawn(2, 2, 4, width, seed=seed) for seed in range(3))
    q.requires_grad_()
    turned_q, turned_k = encoding.rotate(drawn(2, 4, 2 * width), q, k, pos)
    turn = partial(turned, base=base, layout=layout)
    torch.testing.assert_close(turned_q.detach(), every(q, pos, turn), rtol=0, atol=1e-10)
    torch.testing.assert_close(turned_k, every(k, pos, turn), rtol=0, atol=1e-10)
    (gradient,) = torch.autograd.grad((turned_q * up).sum(), q)
    torch.testing.assert_close(gradient, every(up, -pos, turn), rtol=0, atol=1e-10)
    single, _ = encoding.rotate(drawn(2, 4, 2 * width), q.float(), k.float(), pos)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), turned_q, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("width", "axes", "base"), CASES)
def test_sinusoidal_gives_each_axis_a_code_of_its_share(
    width: int, axes: int, base: float, layout: Layout
) -> None:
    encoding = Sinusoidal(geometry(width), spectrum=of_base(base), layout=layout)
    x, pos = drawn(2, 4, width), points(2, 4, axes)
    share = width // axes
    wanted = x.clone()
    for b in range(2):
        for t in range(4):
            for axis in range(axes):
                for i, (sin, cos) in enumerate(pairs(share, layout)):
                    angle = pos[b, t, axis].item() * base ** (-2 * i / share)
                    wanted[b, t, axis * share + sin] += math.sin(angle)
                    wanted[b, t, axis * share + cos] += math.cos(angle)
    torch.testing.assert_close(encoding.embed(x, pos), wanted, rtol=0, atol=1e-10)
    single = encoding.embed(x.float(), pos)
    torch.testing.assert_close(single.double(), wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spectrum", [geometric, yarn, hope, dynamic_ntk])
def test_several_axes_are_a_block_diagonal_of_one(spectrum: Spectrum, layout: Layout) -> None:
    """Encodings of width d/axes, side by side, whatever the spectrum."""
    x, pos = drawn(2, 1, 50, 36), points(2, 50, 3)
    whole, _ = Rope(geometry(36), spectrum=spectrum, layout=layout).rotate(x, x, x, pos)
    one = Rope(geometry(12), spectrum=spectrum, layout=layout)
    code = Sinusoidal(geometry(36), spectrum=spectrum, layout=layout).code(pos, torch.float64)
    one_code = Sinusoidal(geometry(12), spectrum=spectrum, layout=layout)
    for b in range(2):
        for axis in range(3):
            part, along = slice(12 * axis, 12 * axis + 12), pos[b, :, axis]
            wanted, _ = one.rotate(x, x[b, None, :, :, part], x[b, None, :, :, part], along)
            torch.testing.assert_close(whole[b, None, :, :, part], wanted, rtol=0, atol=1e-12)
            wanted = one_code.code(along, torch.float64)
            torch.testing.assert_close(code[b, :, part], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_axes_do_not_mix(layout: Layout) -> None:
    """A coordinate moves the channels of its axis, all of them, and no other."""
    rope = Rope(geometry(24), spectrum=geometric, layout=layout)
    sinusoidal = Sinusoidal(geometry(24), spectrum=geometric, layout=layout)
    x, pos = drawn(1, 1, 5, 24), points(1, 5, 3)
    for axis in range(3):
        other = pos.clone()
        other[..., axis] += 1.5
        for before, after in [
            (rope.rotate(x, x, x, pos)[0], rope.rotate(x, x, x, other)[0]),
            (sinusoidal.embed(x[0], pos), sinusoidal.embed(x[0], other)),
        ]:
            moved = (before != after).flatten(0, -2)
            assert moved[:, 8 * axis : 8 * axis + 8].all()
            assert moved.sum() == moved.shape[0] * 8


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ropes_score_depends_on_each_difference_alone(axes: int, layout: Layout) -> None:
    encoding = Rope(geometry(24), spectrum=of_base(100.0), layout=layout)
    q, k, pos = drawn(1, 1, 6, 24), drawn(1, 1, 6, 24, seed=1), points(1, 6, axes, 20.0)

    def scores(pos: Tensor) -> Tensor:
        turned_q, turned_k = encoding.rotate(q, q, k, pos)
        return turned_q @ turned_k.mT

    here = scores(pos)
    for axis in range(axes):
        step = torch.zeros(axes).double()
        step[axis] = 12_345.5
        torch.testing.assert_close(scores(pos + step), here, rtol=0, atol=1e-9)
        stretched = pos.clone()
        stretched[..., axis] *= 2
        assert (scores(stretched) - here).abs().max() > 0.01


@pytest.mark.parametrize("name", ["rope", "sinusoidal"])
def test_a_batch_has_coordinates_of_its_own(name: str, configured: Configured) -> None:
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
        (partial(Rope, share=0.25), 8, 32),
        (Sinusoidal, 3, 32),
        (Sinusoidal, 7, 64),
    ],
)
def test_widths_that_axes_cannot_share_are_refused(
    make: Callable[..., Encoding], axes: int, width: int
) -> None:
    encoding = make(geometry(width), spectrum=geometric)
    x, pos = drawn(1, 3, width), points(1, 3, axes)
    shared = 8 if isinstance(make, partial) else width
    with pytest.raises(ValueError, match=rf"{axes} axes cannot share a width of {shared} "):
        encoding.rotate(encoding.embed(x, pos), x[:, None], x[:, None], pos)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("share", "axes"), [(0.5, 2), (0.25, 1), (0.75, 3), (0.375, 3)])
def test_partial_rotation_shares_its_part_between_axes(
    share: float, axes: int, layout: Layout
) -> None:
    """The first share of the channels turns, with a spectrum of that share of an axis."""
    encoding = Rope(geometry(48), spectrum=of_base(1e4), layout=layout, share=share)
    width = round(share * 48)
    x, pos = drawn(2, 1, 4, 48), points(2, 4, axes)
    found, _ = encoding.rotate(drawn(2, 4, 48), x, x, pos)
    assert torch.equal(found[..., width:], x[..., width:])
    wanted = every(x[..., :width], pos, partial(turned, base=1e4, layout=layout))
    torch.testing.assert_close(found[..., :width], wanted, rtol=0, atol=1e-10)


def of_alibi(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    """Six heads: four slopes of four heads, two of eight."""
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    return -slopes.double()[:, None, None] * distance


def of_trained_alibi(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    assert isinstance(encoding, Alibi) and isinstance(encoding.slopes, Tensor)
    return -encoding.slopes.double()[:, None, None] * distance


def of_kerple_log(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    assert isinstance(encoding, KerpleLog)
    r1, r2 = (r.double()[:, None, None] for r in (encoding.r1, encoding.r2))
    return -r1 * (1 + r2 * distance).log()


def of_kerple_power(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    assert isinstance(encoding, KerplePower)
    r1, r2 = (r.double()[:, None, None] for r in (encoding.r1, encoding.r2))
    return -r1 * distance**r2


def of_t5(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    """The floor of the norm below 16, its logarithm beyond."""
    assert isinstance(encoding, T5)
    rows = []
    for value in distance.flatten().tolist():
        row = math.floor(value)
        if row >= 16:
            row = min(16 + math.floor(math.log(value / 16) / math.log(128 / 16) * 16), 31)
        rows.append(encoding.table[row].double())
    return torch.stack(rows).T.unflatten(1, distance.shape)


def of_fire(encoding: Encoding, distance: Tensor, query: Tensor) -> Tensor:
    """Over the larger of the threshold and the norm of the query's own coordinates."""
    assert isinstance(encoding, Fire)
    wide = encoding.double()
    threshold = (wide.multiplier * wide.threshold).abs()
    largest = torch.maximum(query.norm(dim=-1), threshold)[:, None]
    relative = (wide.c * distance).abs().add(1).log() / (
        (wide.c * largest).abs().add(1).log() + 1e-6
    )
    return wide.outer(wide.inner(relative[..., None]).relu()).permute(2, 0, 1)


BIASES = [
    (Alibi, of_alibi),
    (partial(Alibi, trainable=True), of_trained_alibi),
    (KerpleLog, of_kerple_log),
    (KerplePower, of_kerple_power),
    (T5, of_t5),
    (partial(Fire, threshold=20.0), of_fire),
]
BIAS_NAMES = ["alibi", "trained alibi", "kerple_log", "kerple_power", "t5", "fire"]


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("name", ["reference", "sdpa"])
@pytest.mark.parametrize(("make", "definition"), BIASES, ids=BIAS_NAMES)
def test_biases_take_the_euclidean_norm_of_the_difference(
    make: Callable[..., Encoding],
    definition: Callable[[Encoding, Tensor, Tensor], Tensor],
    name: str,
    axes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values, gradients and float32; 45 points, in blocks of 16 rows where there are blocks."""
    monkeypatch.setattr(blocks, "ROWS", (16, 16))
    torch.manual_seed(0)
    encoding = make(geometry(24, heads=6)).double()
    pos = points(2, 45, axes, 20.0)
    x, up = drawn(2, 45, 24), drawn(2, 6, 45, 4, seed=5)
    q, k, v = (drawn(2, 6, 45, 4, seed=seed).requires_grad_() for seed in (1, 2, 3))
    parameters = [q, k, v, *encoding.parameters()]
    found = kernel(name)(encoding, x, q, k, v, pos)
    wanted = []
    for b in range(2):
        rows = pos[b].tolist()
        distance = torch.tensor(
            [[math.dist(m, n) for n in rows] for m in rows], dtype=torch.float64
        )
        scores = q[b] @ k[b].mT / 2 + definition(encoding, distance, pos[b])
        later = torch.ones(45, 45, dtype=torch.bool).triu(1)
        wanted.append(scores.masked_fill(later, -math.inf).softmax(dim=-1) @ v[b])
    torch.testing.assert_close(found, torch.stack(wanted), rtol=0, atol=1e-10)
    gradients = torch.autograd.grad((found * up).sum(), parameters)
    others = torch.autograd.grad((torch.stack(wanted) * up).sum(), parameters)
    for ours, oracle in zip(gradients, others, strict=True):
        torch.testing.assert_close(ours, oracle, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        single = kernel(name)(encoding.float(), x.float(), q.float(), k.float(), v.float(), pos)
    torch.testing.assert_close(single.double(), found.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_distances_of_far_points_are_those_of_near_ones_in_float32(axes: int) -> None:
    """They are formed in float64: at 100,000 float32 places a point only to 0.008."""
    near = points(2, 45, axes, 20.0)
    far = near + 100_000
    found = distances(far, far, torch.float32)
    assert found.dtype == torch.float32 and found.shape == (2, 1, 45, 45)
    rows = near.tolist()
    wanted = torch.tensor([[[math.dist(m, n) for n in rows[b]] for m in rows[b]] for b in (0, 1)])
    torch.testing.assert_close(found[:, 0], wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", sorted(options("encoding")))
def test_every_encoding_takes_coordinates_or_refuses_them_by_name(
    name: str, configured: Configured
) -> None:
    """Whatever takes two axes takes one, as it takes positions."""
    model = build_model(configured(f"encoding={name}", "model.layers=4"), 50).double().eval()
    tokens = torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(0))
    try:
        out = model(tokens, points(2, 24, 2, 8.0))
    except ValueError as refusal:
        assert f"{name} takes" in str(refusal) and "coordinates" in str(refusal)
    else:
        assert out.shape == (2, 24, 50) and out.isfinite().all()
        pos = torch.arange(24)
        one = model(tokens, pos[None, :, None].expand(2, -1, -1))
        torch.testing.assert_close(one, model(tokens, pos), rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [Learned, Integers, ScaledIntegers, Binary])
def test_what_needs_an_order_refuses_coordinates(make: type[Encoding]) -> None:
    with pytest.raises(ValueError, match=r"takes .* coordinates of 2 axes"):
        make(geometry(32)).embed(drawn(2, 24, 32), points(2, 24, 2))
