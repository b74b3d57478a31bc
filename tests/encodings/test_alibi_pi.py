"""Position interpolation for ALiBi, compared with attention with smaller slopes."""

import math
from functools import partial

import pytest
import torch

from compositions import composed
from posenc.attention.choice import kernel_function
from posenc.config.errors import ConfigError
from posenc.config.swaps import evaluation_swaps, normalize_swaps
from posenc.encodings.alibi import Alibi
from posenc.encodings.alibi_pi import AlibiPi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.drope import Drope
from posenc.encodings.interleave import Interleave
from posenc.encodings.nope import NoPE
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import geometric
from posenc.encodings.window import Window
from posenc.encodings.wrapper import EncodingFactory
from posenc.evaluation.swap import swap_encoding
from posenc.model.build import build_encoding

HEADS, WIDTH, TRAIN_LENGTH = 4, 8, 16
GEOMETRY = Geometry(width=HEADS * WIDTH, heads=HEADS, layers=2, train_length=TRAIN_LENGTH)
SLOPES = [2**-2, 2**-4, 2**-6, 2**-8]


def largest_error(
    encoding: Encoding, length: int, scale: float, kernel: str, dtype: torch.dtype
) -> float:
    """Return the largest difference from attention whose slopes are multiplied by `scale`."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(2, length, GEOMETRY.width, generator=generator).to(dtype)
    q, k, v = torch.randn(3, 2, HEADS, length, WIDTH, generator=generator).to(dtype).unbind(0)
    pos = encoding.positions(length, torch.device("cpu"))
    out = kernel_function(kernel)(encoding, x, *encoding.rotate(x, q, k, pos), v, pos).double()
    q, k, v = q.double(), k.double(), v.double()
    largest = 0.0
    for i in range(length):
        scores = torch.einsum("bhd,bhjd->bhj", q[:, :, i], k[:, :, : i + 1]) / math.sqrt(WIDTH)
        for h, slope in enumerate(SLOPES):
            penalties = [scale * slope * (i - j) for j in range(i + 1)]
            scores[:, h] -= torch.tensor(penalties, dtype=torch.float64)
        expected = torch.einsum("bhj,bhjd->bhd", scores.softmax(-1), v[:, :, : i + 1])
        largest = max(largest, (out[:, :, i] - expected).abs().max().item())
    return largest


@pytest.mark.parametrize("kernel", ["reference", "auto", "blocks"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(
    ("factor", "length", "scale"),
    [(None, 9, 1), (None, 16, 1), (None, 41, 16 / 41), (3.7, 9, 1 / 3.7), (3.7, 41, 1 / 3.7)],
)
def test_slopes_are_divided_by_the_factor(
    kernel: str,
    factor: float | None,
    length: int,
    scale: float,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    encoding = AlibiPi(GEOMETRY, inner=Alibi, factor=factor)
    assert largest_error(encoding, length, scale, kernel, dtype) < tolerance


def test_an_inner_window_keeps_its_size() -> None:
    encoding = AlibiPi(GEOMETRY, inner=partial(Window, inner=Alibi, size=5))
    assert encoding.window() == 5


@pytest.mark.parametrize("factor", [None, 2.5])
def test_a_swap_keeps_the_learned_slopes(factor: float | None) -> None:
    config = composed("encoding=alibi", "encoding.trainable=true", "train_length=16")
    config.modules = []
    trained = build_encoding(config)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(1.75)
    text = "alibi_pi" if factor is None else f"alibi_pi factor={factor}"
    config.evaluation.swaps = [text]
    normalize_swaps(config, None, [])
    ((name, swap),) = evaluation_swaps(config).items()
    assert name == text and swap is not None
    swapped = swap_encoding(trained, config, text, swap, 40)
    head, distance = torch.arange(4)[:, None, None], torch.arange(9.0).expand(3, 9)
    expected, actual = (e.bias(head, distance, torch.zeros(3, 1)) for e in (trained, swapped))
    assert expected is not None and actual is not None
    torch.testing.assert_close(actual * (40 / 16 if factor is None else factor), expected)


@pytest.mark.parametrize(
    "inner",
    [
        NoPE,
        partial(Rope, spectrum=geometric),
        partial(Interleave, first=Alibi, second=NoPE),
        partial(Drope, inner=Alibi),
    ],
)
def test_inner_encodings_other_than_alibi_are_rejected(inner: EncodingFactory) -> None:
    with pytest.raises(ValueError, match=r"inner=\w+ must be ALiBi in every layer; choose alibi"):
        AlibiPi(GEOMETRY, inner=inner)


@pytest.mark.parametrize("factor", [0.5, -1, math.inf])
def test_an_invalid_factor_is_rejected(factor: float) -> None:
    with pytest.raises(ValueError, match=f"factor={factor} must be from 1"):
        AlibiPi(GEOMETRY, inner=Alibi, factor=factor)


def test_swapping_rope_for_alibi_pi_is_a_config_error() -> None:
    config = composed("encoding=rope", "evaluation.swaps=[alibi_pi]")
    config.modules = []
    normalize_swaps(config, None, [])
    ((name, swap),) = evaluation_swaps(config).items()
    assert name is not None and swap is not None
    with pytest.raises(ConfigError, match="inner=Rope must be ALiBi"):
        swap_encoding(build_encoding(config), config, name, swap, 40)
