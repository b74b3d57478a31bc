"""Decoupled RoPE, compared with scores computed pair by pair with complex numbers."""

import cmath
import math
from functools import partial

import pytest
import torch

from posenc.encodings.base import Geometry
from posenc.encodings.mla_rope import MlaRope
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import geometric

LAYER, LENGTH, HEADS = 1, 11, 3


def geometry(head_dim: int) -> Geometry:
    return Geometry(width=HEADS * head_dim, heads=HEADS, layers=2, train_length=7)


@pytest.mark.parametrize(
    ("width", "rotary_dim", "expected_dim"), [(6, None, 4), (8, None, 4), (5, 6, 6), (1, None, 2)]
)
def test_scores_are_the_sum_of_a_content_part_and_a_rotary_part(
    width: int, rotary_dim: int | None, expected_dim: int
) -> None:
    torch.manual_seed(1)
    spectrum = partial(geometric, base=50.0)
    encoding = MlaRope(geometry(width), spectrum=spectrum, rotary_dim=rotary_dim).double()
    x = torch.randn(2, LENGTH, HEADS * width, dtype=torch.float64)
    q, k = torch.randn(2, 2, HEADS, LENGTH, width, dtype=torch.float64).unbind(0)
    pos = torch.arange(LENGTH) * 13
    with torch.no_grad():
        wide_q, wide_k = encoding.at_layer(LAYER).rotate(x, q, k, pos)
    assert wide_q.shape == wide_k.shape == (2, HEADS, LENGTH, width + expected_dim)
    scores = wide_q @ wide_k.mT * width**-0.5  # as the model scales them
    query, key = encoding.query[LAYER].detach(), encoding.key[LAYER].detach()
    half = expected_dim // 2
    for h, i, j in [(h, i, j) for h in range(HEADS) for i, j in ((10, 0), (7, 7), (4, 2))]:
        rotary_q = query[h * expected_dim : (h + 1) * expected_dim] @ x[1, i]
        rotary_k = key @ x[1, j]
        rotary = sum(
            complex(rotary_q[c], rotary_q[c + half])
            * complex(rotary_k[c], rotary_k[c + half]).conjugate()
            * cmath.exp(1j * (pos[i] - pos[j]).item() * 50.0 ** (-c / half))
            for c in range(half)
        )
        content = (q[1, h, i] @ k[1, h, j]).item()
        expected = (content + complex(rotary).real) / math.sqrt(width + expected_dim)
        assert scores[1, h, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_without_content_mla_rope_is_rope_with_one_key_for_all_heads() -> None:
    encoding = MlaRope(geometry(6), spectrum=geometric, rotary_dim=6).double()
    x = torch.randn(1, LENGTH, 18, dtype=torch.float64)
    q = torch.zeros(1, HEADS, LENGTH, 6, dtype=torch.float64)
    rotary_q, rotary_k = (part[..., 6:] for part in encoding.rotate(x, q, q, torch.arange(LENGTH)))
    queries = (x @ encoding.query[0].mT).unflatten(-1, (HEADS, 6)).transpose(1, 2)
    keys = (x @ encoding.key[0].mT)[:, None].expand_as(queries)
    rope = Rope(geometry(6), spectrum=geometric)
    expected_q, expected_k = rope.rotate(x, queries, keys, torch.arange(LENGTH))
    torch.testing.assert_close(rotary_q, expected_q * 0.5**0.5)
    torch.testing.assert_close(rotary_k, expected_k)


def test_projections_start_like_those_of_the_model_and_odd_widths_are_rejected() -> None:
    encoding = MlaRope(Geometry(width=256, heads=4, layers=2, train_length=7), spectrum=geometric)
    assert encoding.query.shape == (2, 128, 256) and encoding.key.shape == (2, 32, 256)
    for weight in (encoding.query, encoding.key):
        assert weight.std().item() == pytest.approx(1 / 16, rel=0.03)
    for rotary_dim in (0, 3):
        with pytest.raises(ValueError, match=f"rotary_dim={rotary_dim}"):
            MlaRope(geometry(6), spectrum=geometric, rotary_dim=rotary_dim)
