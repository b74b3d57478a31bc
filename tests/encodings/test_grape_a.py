"""GRAPE-A and GRAPE-AP, compared with their formulas pair by pair."""

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from posenc.encodings.alibi import Alibi, authors_slopes
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.grape_a import GrapeA
from posenc.encodings.grape_ap import GrapeAP

LAYER, KEYS, ROWS = 1, 13, 4
Gate = Literal["key", "query", "both"]
Variant = Literal["relative", "paper", "repository"]


def geometry(heads: int, width: int = 5) -> Geometry:
    return Geometry(width=heads * width, heads=heads, layers=2, train_length=7)


def perturbed(encoding: Encoding) -> Encoding:
    """Return the encoding of one layer in float64, away from its initial values."""
    torch.manual_seed(5)
    encoding.double()
    for parameter in encoding.parameters():
        parameter.data += 0.5 * torch.randn(parameter.shape, dtype=torch.float64)
    return encoding.at_layer(LAYER)


def random_inputs(heads: int, width: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(heads)
    q, k = torch.randn(2, 2, heads, KEYS, width, generator=generator).double().unbind(0)
    return torch.randn(2, KEYS, heads * width, generator=generator).double(), q, k


@torch.no_grad()
def last_rows(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Tensor:
    """Return the bias [B, H, R, K] of the last queries."""
    distance = (pos[-ROWS:, None] - pos).to(q.dtype)
    bias = encoding.content_bias(x, q[:, :, -ROWS:], k, distance, pos[-ROWS:, None])
    assert bias is not None and bias.isfinite().all()
    return bias


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


@pytest.mark.parametrize("gate", ["key", "query", "both"])
@pytest.mark.parametrize(("heads", "initial_rate"), [(3, 1.0), (4, 0.01), (1, 7.0)])
def test_slopes_are_multiplied_by_gates(gate: Gate, heads: int, initial_rate: float) -> None:
    encoding = perturbed(GrapeA(geometry(heads), gate=gate, initial_rate=initial_rate))
    assert isinstance(encoding, GrapeA)
    x, q, k = random_inputs(heads)
    pos = torch.arange(KEYS) * 3
    bias = last_rows(encoding, x, q, k, pos)

    def gate_value(vectors: Tensor | None, state: Tensor, head: int) -> float:
        if vectors is None:
            return 0.0
        u = vectors[LAYER, head].detach()
        return softplus((u @ state / math.sqrt(u @ u) / math.sqrt(5)).item())

    for h, i, j in [(h, i, j) for h in range(heads) for i, j in ((12, 0), (10, 10), (9, 8))]:
        omega = authors_slopes(heads)[h] * softplus(encoding.rate[LAYER, h].item())
        gates = gate_value(encoding.query, q[1, h, i], h) + gate_value(encoding.key, k[1, h, j], h)
        expected = -3 * (i - j) * omega * gates
        assert bias[1, h, i - KEYS, j].item() == pytest.approx(expected, abs=1e-12)


def test_without_content_grape_a_is_alibi_times_ln_2() -> None:
    encoding = GrapeA(geometry(4)).double()
    x, _, _ = random_inputs(4)
    zeros, pos = torch.zeros(1, 4, KEYS, 5, dtype=torch.float64), torch.arange(KEYS)
    distance = (pos[-ROWS:, None] - pos).double()
    alibi = Alibi(geometry(4)).bias(torch.arange(4)[:, None, None], distance, distance)
    actual = last_rows(encoding.at_layer(0), x[:1], zeros, zeros, pos)
    torch.testing.assert_close(actual[0], alibi * math.log(2), rtol=1e-6, atol=0)


@pytest.mark.parametrize("variant", ["relative", "paper", "repository"])
@pytest.mark.parametrize(("heads", "position_width"), [(3, 8), (2, 2), (1, 6)])
def test_path_integrals_are_sums_over_the_tokens_after_the_key(
    variant: Variant, heads: int, position_width: int
) -> None:
    encoding = perturbed(GrapeAP(geometry(heads), variant=variant, position_width=position_width))
    assert isinstance(encoding, GrapeAP)
    x, q, k = random_inputs(heads)
    pos = torch.arange(KEYS) * 2 + 5
    bias = last_rows(encoding, x, q, k, pos)
    weight, half = encoding.weight[LAYER].detach(), position_width // 2

    def similarity(h: int, t: int, index: int) -> float:
        query, key = (weight[h] @ x[1, token] for token in (t, index))
        key = key / (key.square().mean() + 2**-23).sqrt()
        if variant != "repository":
            query = query / (query.square().mean() + 2**-23).sqrt()
        angle = pos[index] - pos[t] if variant == "relative" else pos[index]
        cos, sin = math.cos(angle), math.sin(angle)
        a, b = key[:half], key[half:]
        return (query @ torch.cat([a * cos - b * sin, b * cos + a * sin])).item()

    for h, t, j in [(h, t, j) for h in range(heads) for t, j in ((12, 0), (10, 10), (9, 8))]:
        steps = [-softplus(-similarity(h, t, m) / position_width) for m in range(j + 1, t + 1)]
        expected = authors_slopes(heads)[h] * math.fsum(steps)
        assert bias[1, h, t - KEYS, j].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("variant", "relative"), [("relative", True), ("paper", False), ("repository", False)]
)
def test_only_the_relative_variant_ignores_absolute_positions(
    variant: Variant, relative: bool
) -> None:
    encoding = perturbed(GrapeAP(geometry(3), variant=variant))
    near = last_rows(encoding, *random_inputs(3), torch.arange(KEYS))
    far = last_rows(encoding, *random_inputs(3), torch.arange(KEYS) + 100_001)
    assert torch.allclose(near, far, rtol=0, atol=1e-9) == relative
    assert ("shift_invariant" in encoding.limitations) != relative


@pytest.mark.parametrize("make", [GrapeA, GrapeAP])
def test_blocks_and_float32_match_the_reference_at_an_odd_length(
    make: type[Encoding], assert_blocks_match: Callable[..., None]
) -> None:
    encoding = perturbed(make(geometry(2, 8)))
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, 1, 2, 301, 8, generator=generator).double().unbind(0)
    x = torch.randn(1, 301, 16, generator=generator).double()
    assert_blocks_match(encoding, x, q, k, v)


def test_invalid_parameters_and_coordinates_are_rejected() -> None:
    with pytest.raises(ValueError, match="initial_rate=0"):
        GrapeA(geometry(2), initial_rate=0)
    with pytest.raises(ValueError, match="position_width=3"):
        GrapeAP(geometry(2), position_width=3)
    q, distance = torch.zeros(1, 2, 3, 5), torch.zeros(1, 1, 3, 3)
    with pytest.raises(ValueError, match="variant=paper does not take coordinates"):
        paper = GrapeAP(geometry(2), variant="paper")
        paper.content_bias(torch.zeros(1, 3, 10), q, q, distance, distance)


def test_path_integrals_over_coordinates_exclude_later_tokens() -> None:
    encoding = perturbed(GrapeAP(geometry(2)))
    x, q, k = random_inputs(2)
    points = torch.randn(2, KEYS, 2, dtype=torch.float64)

    def bias(length: int) -> Tensor:
        distance = torch.cdist(points[:, :length], points[:, :length])[:, None]
        content = x[:, :length], q[:, :, :length], k[:, :, :length]
        result = encoding.content_bias(*content, distance, distance[..., :1])
        assert result is not None
        return result[:, :, :9, :9].tril()

    torch.testing.assert_close(bias(KEYS), bias(9))
