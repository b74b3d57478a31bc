"""M-RoPE, compared with the rotary embeddings of Qwen2-VL and Qwen3-VL in transformers."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb as rotate
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

from posenc.encodings.base import Geometry
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import geometric

LENGTH = 19


def rope(width: int, sections: list[int] | None, **kwargs: Any) -> Rope:
    geometry = Geometry(width=2 * width, heads=2, layers=1, train_length=7)
    return Rope(geometry, spectrum=geometric, sections=sections, **kwargs)


def inputs(width: int, axes: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(width)
    q, k = torch.randn(2, 2, 2, LENGTH, width, generator=generator).double().unbind(0)
    pos = torch.randint(0, 60, (2, LENGTH, axes), generator=generator)
    return torch.zeros(2, LENGTH, 2 * width), q, k, pos


@pytest.mark.parametrize(
    ("width", "sections", "interleave"),
    [
        (128, [16, 24, 24], False),
        (128, [24, 20, 20], True),
        (22, [3, 1, 7], False),
        (22, [5, 3, 3], True),
        (20, [6, 1, 3], True),
        (6, [1, 1, 1], True),
    ],
)
def test_sections_equal_those_of_transformers(
    width: int, sections: list[int], interleave: bool
) -> None:
    rope_parameters = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}
    options: Any = {
        "hidden_size": 2 * width,
        "num_attention_heads": 2,
        "rope_parameters": rope_parameters,
    }
    qwen2: Any = Qwen2VLTextConfig(**options)
    qwen3 = Qwen3VLTextConfig(**options, head_dim=width)
    theirs = Qwen3VLTextRotaryEmbedding(qwen3) if interleave else Qwen2VLRotaryEmbedding(qwen2)
    x, q, k, pos = inputs(width)
    cos, sin = theirs(x, pos.permute(2, 0, 1))
    actual = rope(width, sections, interleave=interleave).rotate(x, q, k, pos)
    expected = rotate(q, k, cos, sin)
    for ours, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(
            ours, other.double(), rtol=0, atol=1e-4
        )  # theirs has float32 angles


@pytest.mark.parametrize("kwargs", [{}, {"layout": "interleaved", "rotary_fraction": 0.5}])
def test_text_is_rotated_as_in_rope(kwargs: dict[str, Any]) -> None:
    x, q, k, _ = inputs(24)
    pos = torch.arange(LENGTH)
    expected = rope(24, None, **kwargs).rotate(x, q, k, pos)
    for points in (pos, pos[None, :, None].expand(2, -1, 1), pos[None, :, None].expand(2, -1, 3)):
        actual = rope(24, [2, 1, 1], interleave=True, **kwargs).rotate(x, q, k, points)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_sections_are_scaled_to_the_head_width() -> None:
    x, q, k, pos = inputs(16)
    expected = rope(16, [2, 3, 3]).rotate(x, q, k, pos)
    actual = rope(16, [16, 24, 24]).rotate(x, q, k, pos)
    assert torch.equal(actual[0], expected[0])


@pytest.mark.parametrize(
    ("width", "sections", "interleave", "message"),
    [
        (16, [], False, "positive number"),
        (16, [4, 0, 4], False, "positive number"),
        (4, [1, 1, 1], False, "leave an axis without any of the 2"),
        (16, [2, 3, 3], True, "cannot be interleaved"),
    ],
)
def test_sections_that_do_not_fit_are_rejected(
    width: int, sections: list[int], interleave: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rope(width, sections, interleave=interleave)


def test_a_different_number_of_axes_is_rejected() -> None:
    x, q, k, pos = inputs(16, axes=2)
    with pytest.raises(ValueError, match="coordinates on 3 axes, not on 2"):
        rope(16, [2, 3, 3]).rotate(x, q, k, pos)
