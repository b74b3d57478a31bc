"""Attention within chunks equals separate attention on each chunk."""

from functools import partial

import pytest
import torch

from posenc.attention import reference
from posenc.attention.choice import kernel_function
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Geometry
from posenc.encodings.chunked import Chunked
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import geometric
from posenc.encodings.window import Window
from posenc.encodings.wrapper import EncodingFactory

GEOMETRY = Geometry(width=24, heads=3, layers=1, train_length=16)
ROPE: EncodingFactory = partial(Rope, spectrum=geometric)


@pytest.mark.parametrize("inner", [ROPE, Alibi, partial(Window, inner=ROPE, size=4)])
@pytest.mark.parametrize(("size", "length"), [(1, 5), (7, 23), (300, 61), (129, 300)])
def test_chunks_do_not_attend_to_each_other(inner: EncodingFactory, size: int, length: int) -> None:
    """The inner encodings depend only on distance, so each chunk may start at position 0."""
    generator = torch.Generator().manual_seed(length)
    q, k, v = torch.randn(3, 1, 3, length, 8, generator=generator, dtype=torch.float64).unbind(0)
    encoding, plain = Chunked(GEOMETRY, inner=inner, size=size), inner(GEOMETRY)
    x, pos = torch.zeros(1, length, 24, dtype=torch.float64), torch.arange(length)
    rotated = encoding.rotate(x, q, k, pos)
    expected = []
    for chunk_q, chunk_k, chunk_v in zip(*(t.split(size, dim=2) for t in (q, k, v)), strict=True):
        chunk_pos = torch.arange(chunk_q.shape[2])
        chunk_x = x[:, : len(chunk_pos)]
        rotated_chunk = plain.rotate(chunk_x, chunk_q, chunk_k, chunk_pos)
        expected.append(reference.attend(plain, chunk_x, *rotated_chunk, chunk_v, chunk_pos))
    for kernel in ("reference", "auto"):
        actual = kernel_function(kernel)(encoding, x, *rotated, v, pos)
        torch.testing.assert_close(actual, torch.cat(expected, dim=2), rtol=0, atol=1e-12)


def test_a_chunk_size_of_0_is_rejected() -> None:
    with pytest.raises(ValueError, match="size=0 must be at least 1"):
        Chunked(GEOMETRY, inner=ROPE, size=0)
