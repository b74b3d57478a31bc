"""RoPE++, compared with real and imaginary parts of products of complex numbers."""

import cmath
from functools import partial
from typing import Literal

import pytest
import torch

from posenc.encodings.base import Geometry
from posenc.encodings.rope import Layout
from posenc.encodings.rope_plus_plus import RopePlusPlus
from posenc.encodings.spectra import geometric

Mode = Literal["imagh", "imagx", "imago"]
LENGTH, WIDTH, BASE = 9, 6, 123.0


@pytest.mark.parametrize(
    ("mode", "heads", "imaginary"),
    [
        ("imagh", 4, {2, 3}),
        ("imagh", 5, {2, 3, 4}),
        ("imagx", 5, {1, 3}),
        ("imago", 2, {0, 1}),
        ("imago", 1, {0}),
    ],
)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_scores_are_real_or_imaginary_parts(
    mode: Mode, heads: int, imaginary: set[int], layout: Layout
) -> None:
    geometry = Geometry(width=heads * WIDTH, heads=heads, layers=1, train_length=7)
    encoding = RopePlusPlus(
        geometry, spectrum=partial(geometric, base=BASE), imag_mode=mode, layout=layout
    )
    generator = torch.Generator().manual_seed(heads)
    q, k = torch.randn(2, 1, heads, LENGTH, WIDTH, generator=generator).double().unbind(0)
    pos = torch.arange(LENGTH) * 37
    rotated_q, rotated_k = encoding.rotate(torch.zeros(1, LENGTH, 1), q, k, pos)
    scores = rotated_q @ rotated_k.mT

    def pair(vector: torch.Tensor, c: int) -> complex:
        a, b = (2 * c, 2 * c + 1) if layout == "interleaved" else (c, c + WIDTH // 2)
        return complex(vector[a], vector[b])

    for h, i, j in [(h, i, j) for h in range(heads) for i, j in ((8, 0), (5, 5), (3, 2))]:
        z = sum(
            pair(q[0, h, i], c)
            * pair(k[0, h, j], c).conjugate()
            * cmath.exp(1j * (pos[i] - pos[j]).item() * BASE ** (-2 * c / WIDTH))
            for c in range(WIDTH // 2)
        )
        expected = complex(z).imag if h in imaginary else complex(z).real
        assert scores[0, h, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_modes_that_need_two_heads_reject_one() -> None:
    geometry = Geometry(width=6, heads=1, layers=1, train_length=7)
    for mode in ("imagh", "imagx"):
        with pytest.raises(ValueError, match=f"imag_mode={mode}.*one head"):
            RopePlusPlus(geometry, spectrum=geometric, imag_mode=mode)
