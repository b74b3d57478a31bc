"""Sinusoidal embeddings, compared with transformers, x-transformers and positional-encodings."""

import warnings

import pytest
import torch
from positional_encodings.torch_encodings import (
    PositionalEncoding1D,
    PositionalEncoding2D,
    PositionalEncoding3D,
)
from torch import Tensor
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.whisper.modeling_whisper import sinusoids
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

from posenc.encodings.base import Geometry
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import geometric, geometric_t2t

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    from x_transformers.x_transformers import ScaledSinusoidalEmbedding

WIDTHS = [16, 96, 256]
widths = pytest.mark.parametrize("width", WIDTHS)


def geometry(width: int) -> Geometry:
    return Geometry(width=width, heads=1, layers=1, train_length=64)


def embeddings(encoding: Sinusoidal, pos: Tensor) -> Tensor:
    return encoding.embed(torch.zeros(1, pos.shape[-2] if pos.ndim > 1 else len(pos), 1), pos)[0]


@widths
def test_marian_equals_the_concatenated_layout_and_xlm_the_interleaved_one(width: int) -> None:
    """Both compute float64 angles and agree with ours where float32 angles would not."""
    pos = torch.arange(1000)
    concatenated = Sinusoidal(geometry(width), spectrum=geometric, layout="concatenated")
    marian = MarianSinusoidalPositionalEmbedding(1000, width).create_weight()
    torch.testing.assert_close(embeddings(concatenated, pos), marian, rtol=0, atol=2e-7)
    xlm = create_sinusoidal_embeddings(1000, width, torch.empty(1000, width))
    interleaved = Sinusoidal(geometry(width), spectrum=geometric)
    torch.testing.assert_close(embeddings(interleaved, pos), xlm, rtol=0, atol=2e-7)


@widths
def test_whisper_has_the_frequencies_of_geometric_t2t(width: int) -> None:
    encoding = Sinusoidal(geometry(width), spectrum=geometric_t2t, layout="concatenated")
    theirs = sinusoids(64, width)
    torch.testing.assert_close(embeddings(encoding, torch.arange(64)), theirs, rtol=0, atol=3e-5)


@widths
def test_x_transformers_scales_by_the_inverse_square_root_of_the_width_and_ours_by_1(
    width: int,
) -> None:
    """Their scale is learnable and matches token embeddings that are initially as small."""
    encoding = Sinusoidal(geometry(width), spectrum=geometric, layout="concatenated")
    theirs = ScaledSinusoidalEmbedding(width)(torch.zeros(1, 64, width))
    ours = embeddings(encoding, torch.arange(64))
    torch.testing.assert_close(ours * width**-0.5, theirs, rtol=0, atol=3e-5)


@widths
def test_positional_encodings_equals_ours_in_one_dimension(width: int) -> None:
    encoding = Sinusoidal(geometry(width), spectrum=geometric)
    theirs = PositionalEncoding1D(width)(torch.zeros(1, 64, width))[0]
    torch.testing.assert_close(embeddings(encoding, torch.arange(64)), theirs, rtol=0, atol=3e-5)


@pytest.mark.parametrize("width", [24, 96, 240])
def test_positional_encodings_splits_the_width_between_axes_like_ours(width: int) -> None:
    encoding = Sinusoidal(geometry(width), spectrum=geometric)
    plane = PositionalEncoding2D(width)(torch.zeros(1, 9, 13, width))
    space = PositionalEncoding3D(width)(torch.zeros(1, 4, 5, 6, width))
    for sides, theirs in [((9, 13), plane), ((4, 5, 6), space)]:
        points = torch.cartesian_prod(*(torch.arange(side) for side in sides))[None]
        torch.testing.assert_close(
            embeddings(encoding, points), theirs.flatten(0, -2), rtol=0, atol=1e-5
        )
