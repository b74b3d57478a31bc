"""xPos, PoPE and LongRoPE, compared with the papers' sums, one query and key at a time."""

import cmath
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention.choice import kernel_function
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.longrope import LongRope
from posenc.encodings.pope import Pope
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import dynamic_ntk, geometric, longrope
from posenc.encodings.xpos import Xpos

POSITIONS = [0, 3, 511, 40_000]


def geometry(width: int, heads: int = 1, train_length: int = 512) -> Geometry:
    return Geometry(width=width * heads, heads=heads, layers=2, train_length=train_length)


def scores(encoding: Encoding, q: Tensor, k: Tensor, pos: list[int]) -> Tensor:
    """Return q . k after `rotate` for every pair of positions, [B, H, T, T]."""
    x = torch.zeros(q.shape[0], q.shape[2], encoding.geometry.width, dtype=q.dtype)
    rotated_q, rotated_k = encoding.rotate(x, q, k, torch.tensor(pos))
    return rotated_q @ rotated_k.mT


def random_inputs(width: int, heads: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(width + heads)
    shape = (1, heads, count, width)
    q, k = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return q.requires_grad_(), k.requires_grad_()


def pairs(row: Tensor, layout: str) -> list[complex]:
    half = len(row) // 2
    channels = [
        (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + half) for i in range(half)
    ]
    return [complex(row[a].item(), row[b].item()) for a, b in channels]


@pytest.mark.parametrize(("width", "heads", "base"), [(16, 6, 10.0), (64, 2, 1e4), (256, 1, 1e7)])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize(("scale_base", "gamma"), [(512.0, 0.4), (300.0, 1.5)])
def test_xpos_rotates_and_decays_complex_numbers(
    width: int, heads: int, base: float, layout: str, scale_base: float, gamma: float
) -> None:
    encoding = Xpos(
        geometry(width, heads),
        spectrum=partial(geometric, base=base),
        layout=layout,  # pyrefly: ignore[bad-argument-type]
        scale_base=scale_base,
        gamma=gamma,
    )
    q, k = random_inputs(width, heads, 4)
    pos = [0, 3, 511, 9_000]
    actual = scores(encoding, q, k, pos)
    for h in range(heads):
        for i, m in enumerate(pos):
            for j, n in enumerate(pos[: i + 1]):
                expected = 0.0
                for p, (a, b) in enumerate(
                    zip(pairs(q[0, h, i], layout), pairs(k[0, h, j], layout), strict=True)
                ):
                    zeta = (p / (width / 2) + gamma) / (1 + gamma)
                    rotation = cmath.exp(1j * (m - n) * base ** (-2 * p / width))
                    expected += zeta ** ((m - n) / scale_base) * (a * rotation * b.conjugate()).real
                assert actual[0, h, i, j].item() == pytest.approx(expected, rel=1e-8, abs=1e-10)


def test_xpos_matches_golden_values() -> None:
    """The values are zeta, and the mean over pairs of zeta^(delta/512), at d=64."""
    encoding = Xpos(geometry(64), spectrum=geometric)
    expected = [0.28571428571, 0.30803571429, 0.46428571429, 0.64285714286, 0.97767857143]
    assert encoding.decay[[0, 1, 8, 16, 31]].tolist() == pytest.approx(expected, rel=1e-9)
    unrotated = Xpos(geometry(64), spectrum=partial(geometric, base=1e300))
    unit_pairs = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(32).view(1, 1, 1, 64)
    means = {1: 0.99898783, 10: 0.98994572, 100: 0.90582233, 512: 0.63169643, 1024: 0.44151586}
    unit_pairs[..., :2] = 0  # the pair that base^0 still rotates; its part is added below
    for delta, mean in means.items():
        queries = unit_pairs.expand(1, 1, 2, 64)
        actual = scores(unrotated, queries, queries, [0, delta])[0, 0, 1, 0].item()
        assert (actual + (2 / 7) ** (delta / 512)) / 32 == pytest.approx(mean, rel=1e-7)


def test_xpos_rejects_distances_past_its_limit() -> None:
    encoding = Xpos(geometry(64), spectrum=geometric)
    limit = encoding.max_length()
    q, k = (part.detach().float() for part in random_inputs(64, 1, 2))
    causal = scores(encoding, q, k, [0, limit - 1])[0, 0][[0, 1, 1], [0, 0, 1]]
    assert causal.isfinite().all()
    with pytest.raises(ValueError, match=rf"span more than the {limit} tokens.*larger"):
        scores(encoding, q, k, [0, limit])
    far = scores(encoding, q, k, [100_000, 100_010])
    near = scores(encoding, q, k, [0, 10])
    torch.testing.assert_close(far, near, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"gamma": 1e17}, r"gamma=1e\+17 .* 1000000"),
        ({"gamma": 0.0}, "gamma=0.0"),
        ({"scale_base": 0.0}, "scale_base=0.0"),
        ({"scale_base": math.inf}, "scale_base=inf"),
    ],
)
def test_xpos_rejects_invalid_parameters(kwargs: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Xpos(geometry(16), spectrum=geometric, **kwargs)  # pyrefly: ignore[bad-argument-type]
    assert Xpos(geometry(16), spectrum=geometric, gamma=1e6).max_length() > 10**9


@pytest.mark.parametrize("name", ["reference", "auto"])
def test_xpos_is_finite_near_its_limit(name: str) -> None:
    encoding = Xpos(geometry(16, 2), spectrum=geometric, scale_base=4.0)
    length = encoding.max_length() - 1
    q, k, v = torch.randn(3, 1, 2, length, 16, requires_grad=True).unbind(0)
    pos, x = torch.arange(length), torch.zeros(1, length, 32)
    out = kernel_function(name)(encoding, x, *encoding.rotate(x, q, k, pos), v, pos)
    actual = torch.autograd.grad(out.square().sum(), [q, k, v])
    assert all(part.isfinite().all() for part in [out, *actual])


@pytest.mark.parametrize(("width", "heads", "base"), [(16, 6, 10.0), (64, 2, 1e4), (256, 1, 1e7)])
@pytest.mark.parametrize("layer", [0, 1])
def test_pope_matches_the_papers_sum_over_channels(
    width: int, heads: int, base: float, layer: int
) -> None:
    encoding = Pope(
        geometry(width, heads), spectrum=partial(geometric, base=base), phase_init="uniform"
    ).double()
    q, k = random_inputs(width, heads, 4)
    actual = scores(encoding.at_layer(layer), q, k, POSITIONS)
    phase = encoding.phase[layer, :, 0].tolist()
    for h in range(heads):
        for i, m in enumerate(POSITIONS):
            for j, n in enumerate(POSITIONS):
                expected = 0.0
                for c in range(width):
                    magnitude = math.log1p(math.exp(q[0, h, i, c].item()))
                    magnitude *= math.log1p(math.exp(k[0, h, j, c].item()))
                    expected += magnitude * math.cos((n - m) * base ** (-c / width) + phase[h][c])
                assert actual[0, h, i, j].item() == pytest.approx(expected, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (0.0, {0: 30.7489928908, 1: 29.8330975298, 10: 20.5730090576, 100: 14.6746948668}),
        (-math.pi / 2, {1: -3.3634295785, 10: -5.3517294479}),
    ],
)
def test_pope_matches_golden_values(phase: float, expected: dict[int, float]) -> None:
    encoding = Pope(geometry(64), spectrum=geometric).double()
    torch.nn.init.constant_(encoding.phase, phase)
    zeros = torch.zeros(1, 1, 2, 64, dtype=torch.float64)
    for distance, score in expected.items():
        actual = scores(encoding, zeros, zeros, [0, distance])[0, 0, 1, 0]
        assert actual.item() == pytest.approx(score, rel=1e-8)


def test_pope_phases_are_clamped_at_minus_two_pi() -> None:
    q, k = random_inputs(16, 2, 3)
    inside, outside = (Pope(geometry(16, 2), spectrum=geometric).double() for _ in range(2))
    torch.nn.init.constant_(inside.phase, -2 * math.pi)
    torch.nn.init.constant_(outside.phase, -9.0)
    pos = [0, 5, 70]
    torch.testing.assert_close(scores(inside, q, k, pos), scores(outside, q, k, pos))


def test_pope_has_the_gradients_of_its_formula() -> None:
    encoding = Pope(geometry(16, 2), spectrum=geometric, phase_init="uniform").double()
    q, k = random_inputs(16, 2, 3)

    def total(phase: Tensor) -> Tensor:
        actual = 0.0
        for i, m in enumerate(POSITIONS[:3]):
            for j, n in enumerate(POSITIONS[:3]):
                magnitudes = (1 + q[0, :, i].exp()).log() * (1 + k[0, :, j].exp()).log()
                angle = (n - m) * 1e4 ** (-torch.arange(16).double() / 16)
                actual = actual + (magnitudes * (angle + phase).cos()).sum().sin()
        assert isinstance(actual, Tensor)
        return actual

    phase = encoding.phase[0, :, 0].detach().requires_grad_()
    expected = torch.autograd.grad(total(phase), [phase, q, k])
    ours = scores(encoding, q, k, POSITIONS[:3]).sum(dim=1).sin().sum()
    actual = torch.autograd.grad(ours, [encoding.phase, q, k])
    torch.testing.assert_close(actual[0][0, :, 0], expected[0])
    torch.testing.assert_close(actual[1], expected[1])
    torch.testing.assert_close(actual[2], expected[2])


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_longrope_rescales_all_but_the_first_tokens(layout: str) -> None:
    factors = [1.0, 1.5, 2.0, 7.0]
    encoding = LongRope(
        geometry(8),
        spectrum=geometric,
        layout=layout,  # pyrefly: ignore[bad-argument-type]
        factors=factors,
        start_tokens=3,
    )
    q, k = random_inputs(8, 1, 5)
    pos = [0, 2, 3, 100, 99_999]
    actual = scores(encoding, q, k, pos)
    for i, m in enumerate(pos):
        for j, n in enumerate(pos):
            expected = 0.0
            for p, (a, b) in enumerate(
                zip(pairs(q[0, 0, i], layout), pairs(k[0, 0, j], layout), strict=True)
            ):
                frequency = 1e4 ** (-2 * p / 8)
                angle = m * frequency / (1 if m < 3 else factors[p])
                angle -= n * frequency / (1 if n < 3 else factors[p])
                expected += (a * cmath.exp(1j * angle) * b.conjugate()).real
            assert actual[0, 0, i, j].item() == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("start_tokens", [0, 4])
def test_longrope_declares_the_limitation_of_its_spectrum(start_tokens: int) -> None:
    encoding = LongRope(geometry(16), spectrum=dynamic_ntk, factors=2.0, start_tokens=start_tokens)
    expected = {"prefix_consistent", *(["shift_invariant"] if start_tokens else [])}
    assert set(encoding.limitations) == expected


def test_longrope_with_a_single_factor_and_no_start_tokens_equals_ntk() -> None:
    width, factor = 64, 4.0
    rescaled = LongRope(geometry(width), spectrum=geometric, factors=factor, start_tokens=0)
    assert not rescaled.limitations  # unlike with start tokens, it is shift-invariant
    base = 1e4 * factor ** (width / (width - 2))
    ntk = Rope(geometry(width), spectrum=partial(geometric, base=base))
    q, k = random_inputs(width, 1, 4)
    torch.testing.assert_close(scores(rescaled, q, k, POSITIONS), scores(ntk, q, k, POSITIONS))


@pytest.mark.parametrize("factors", [[1.0, 2.0], [1.0, 2.0, -1.0, 4.0], 0.5])
def test_longrope_rejects_invalid_factors(factors: float | list[float]) -> None:
    with pytest.raises(ValueError, match="factors"):
        LongRope(geometry(8), spectrum=geometric, factors=factors)


@pytest.mark.parametrize(
    ("factor", "train_length", "expected"),
    [(4.0, 512, 1.105541597), (8.0, 4096, 1.118033989), (32.0, 4096, 1.190238071)],
)
def test_the_magnitudes_of_the_longrope_spectrum_match_golden_values(
    factor: float, train_length: int, expected: float
) -> None:
    assert longrope(64, train_length, train_length, factor=factor)[1] == pytest.approx(expected)
    assert longrope(64, train_length, train_length, factor=1.0)[1] == 1.0


def test_longrope_spectrum_selects_its_factors_by_length() -> None:
    short_factor, long_factor = [1.0, 1.1, 1.2, 1.3], [2.0, 3.0, 5.0, 9.0]
    frequency = [1e4 ** (-2 * p / 8) for p in range(4)]
    spectrum = partial(longrope, 8, 512, short_factor=short_factor, long_factor=long_factor)
    inside, past = spectrum(512)[0].tolist(), spectrum(513)[0].tolist()
    assert inside == pytest.approx([f / s for f, s in zip(frequency, short_factor, strict=True)])
    assert past == pytest.approx([f / s for f, s in zip(frequency, long_factor, strict=True)])
