"""Hybrid encodings of released models, compared with transformers layer by layer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor
from transformers import Cohere2Config, GptOssConfig, Llama4TextConfig, Olmo3Config, SmolLM3Config
from transformers.models.cohere2.modeling_cohere2 import Cohere2RotaryEmbedding
from transformers.models.cohere2.modeling_cohere2 import apply_rotary_pos_emb as rotate_adjacent
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding
from transformers.models.llama4.modeling_llama4 import (
    Llama4TextAttention,
    Llama4TextRotaryEmbedding,
)
from transformers.models.olmo3.modeling_olmo3 import Olmo3RotaryEmbedding
from transformers.models.olmo3.modeling_olmo3 import apply_rotary_pos_emb as rotate_half
from transformers.models.smollm3.modeling_smollm3 import SmolLM3RotaryEmbedding

from posenc.attention.choice import kernel_function
from posenc.encodings.base import Encoding
from posenc.model.block import Attention
from posenc.model.build import build_encoding

Configured = Callable[..., DictConfig]
HEADS, HEAD_DIM, LAYERS, LENGTH, TRAIN_LENGTH, SIZE = 3, 32, 8, 53, 29, 11
POSITIONS = torch.arange(LENGTH)[None]
DIMENSIONS = {"hidden_size": HEADS * HEAD_DIM, "num_attention_heads": HEADS}
MODEL_OVERRIDES = [
    f"model.width={HEADS * HEAD_DIM}",
    f"model.heads={HEADS}",
    f"model.layers={LAYERS}",
]
Rotate = Callable[..., tuple[Tensor, Tensor]]


def queries_and_keys() -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 1, HEADS, LENGTH, HEAD_DIM).unbind(0)
    return q, k


def hybrid(configured: Configured, name: str, *overrides: str) -> Encoding:
    arguments = [f"encoding={name}", f"train_length={TRAIN_LENGTH}", *MODEL_OVERRIDES, *overrides]
    return build_encoding(configured(*arguments))


def assert_layer(
    encoding: Encoding,
    index: int,
    rotate: Rotate,
    angles: tuple[Tensor, Tensor] | None,
    window: int | None,
) -> None:
    """Compare a layer's rotation and window; `angles` are (cos, sin), or None without RoPE."""
    layer, (q, k) = encoding.at_layer(index), queries_and_keys()
    theirs = (q, k) if angles is None else rotate(q, k, *angles)
    ours = layer.rotate(torch.zeros(1, LENGTH, 1), q, k, POSITIONS[0])
    torch.testing.assert_close(ours, tuple(theirs), rtol=0, atol=1e-5)
    assert layer.window() == window
    assert not any(layer.overrides(hook) for hook in ("bias", "content_bias", "value_bias"))


def test_smollm3_equals_transformers(configured: Configured) -> None:
    config: Any = SmolLM3Config(num_hidden_layers=LAYERS, **DIMENSIONS)
    angles = SmolLM3RotaryEmbedding(config)(torch.zeros(1), POSITIONS)
    encoding = hybrid(configured, "smollm3")
    for index in range(LAYERS):
        rotates = config.no_rope_layers[index]  # 1 in layers with RoPE
        assert_layer(encoding, index, rotate_half, angles if rotates else None, None)


def test_command_a_equals_transformers(configured: Configured) -> None:
    config: Any = Cohere2Config(num_hidden_layers=LAYERS, sliding_window=SIZE, **DIMENSIONS)
    angles = Cohere2RotaryEmbedding(config)(torch.zeros(1), POSITIONS)
    encoding = hybrid(configured, "command_a", f"encoding.first.size={SIZE}")
    for index, kind in enumerate(config.layer_types):
        local = kind == "sliding_attention"
        window = SIZE if local else None
        assert_layer(encoding, index, rotate_adjacent, angles if local else None, window)


def test_command_a_equals_rnope_swa_with_another_order_of_channels(
    configured: Configured,
) -> None:
    adjacent, half = (hybrid(configured, name) for name in ("command_a", "rnope_swa"))
    order = torch.arange(HEAD_DIM).view(-1, 2).T.flatten()  # even channels, then odd ones
    (q, k), x = queries_and_keys(), torch.zeros(1, LENGTH, 1)
    for index in range(LAYERS):
        a, b = adjacent.at_layer(index), half.at_layer(index)
        assert a.window() == b.window()
        rotated = b.rotate(x, q[..., order], k[..., order], POSITIONS[0])
        for ours, theirs in zip(a.rotate(x, q, k, POSITIONS[0]), rotated, strict=True):
            torch.testing.assert_close(ours[..., order], theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", [6, 8])
def test_gemma4_equals_transformers(configured: Configured, layers: int) -> None:
    widths: dict[str, Any] = {"head_dim": HEAD_DIM, "global_head_dim": HEAD_DIM}
    config: Any = Gemma4TextConfig(
        num_hidden_layers=layers, sliding_window=SIZE, **DIMENSIONS, **widths
    )
    rotary = Gemma4TextRotaryEmbedding(config)
    size = f"encoding.first.size={SIZE}"
    encoding = hybrid(configured, "gemma4", size, f"model.layers={layers}")
    for index, kind in enumerate(config.layer_types):
        angles = rotary(torch.zeros(1), POSITIONS, kind)
        window = SIZE if kind == "sliding_attention" else None
        assert_layer(encoding, index, rotate_half, angles, window)


@pytest.mark.parametrize("factor", [None, 2.5])
def test_olmo3_equals_transformers(configured: Configured, factor: float | None) -> None:
    """With a factor of null, the factor is the length divided by the training length.

    Transformers rounds the ends of YaRN's ramp, which this preset does not.
    """
    scale = LENGTH / TRAIN_LENGTH if factor is None else factor
    yarn = {
        "rope_type": "yarn",
        "factor": scale,
        "original_max_position_embeddings": TRAIN_LENGTH,
        "rope_theta": 500_000.0,
    }
    config: Any = Olmo3Config(
        num_hidden_layers=LAYERS,
        sliding_window=SIZE,
        max_position_embeddings=LENGTH,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
            "full_attention": yarn,
        },
        **DIMENSIONS,
    )
    rotary = Olmo3RotaryEmbedding(config)
    overrides = [f"encoding.first.size={SIZE}", "encoding.second.spectrum.truncate=true"]
    if factor is not None:
        overrides.append(f"encoding.second.spectrum.factor={factor}")
    encoding = hybrid(configured, "olmo3", *overrides)
    for index, kind in enumerate(config.layer_types):
        angles = rotary(torch.zeros(1), POSITIONS, kind)
        window = SIZE if kind == "sliding_attention" else None
        assert_layer(encoding, index, rotate_half, angles, window)


def attention_like(theirs: torch.nn.Module) -> Attention:
    """Initialize a transformers layer's projections; return our attention with the same weights."""
    ours = Attention(HEADS * HEAD_DIM, HEADS, kernel_function("auto"), bias=True)
    projections = [getattr(theirs, f"{name}_proj") for name in "qkvo"]
    for projection in projections:
        torch.nn.init.normal_(projection.weight, std=0.1)
        torch.nn.init.normal_(projection.bias)
    ours.qkv.weight.data = torch.cat([projection.weight.data for projection in projections[:3]])
    ours.qkv.bias.data = torch.cat([projection.bias.data for projection in projections[:3]])
    ours.out.weight.data, ours.out.bias.data = projections[3].weight.data, projections[3].bias.data
    return ours


def additive_mask(visible: Tensor) -> Tensor:
    """Return the mask [1, 1, T, T] that transformers takes for the visible keys [T, T]."""
    return torch.zeros(LENGTH, LENGTH).masked_fill(~visible, -torch.inf)[None, None]


@torch.no_grad()
@pytest.mark.parametrize("factor", [None, 32.0])
def test_gpt_oss_equals_transformers(configured: Configured, factor: float | None) -> None:
    """Outputs of whole attention layers: sinks, windows in every other layer, and YaRN in all."""
    torch.manual_seed(0)
    scale = LENGTH / TRAIN_LENGTH if factor is None else factor
    config: Any = GptOssConfig(
        num_hidden_layers=LAYERS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        sliding_window=SIZE,
        max_position_embeddings=round(scale * TRAIN_LENGTH),
        rope_parameters={
            "rope_type": "yarn",
            "factor": scale,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": TRAIN_LENGTH,
            "rope_theta": 150_000.0,
        },
        **DIMENSIONS,
    )
    config._attn_implementation = "eager"
    angles = GptOssRotaryEmbedding(config)(torch.zeros(1), POSITIONS)
    layers = ("inner.first.inner", "inner.second")
    overrides = [f"encoding.{layer}.spectrum.factor={factor}" for layer in layers if factor]
    encoding = hybrid(configured, "gpt_oss", f"encoding.inner.first.size={SIZE}", *overrides)
    encoding.get_parameter("logits").data.normal_()
    x, distance = torch.randn(2, LENGTH, HEADS * HEAD_DIM), POSITIONS.T - POSITIONS
    for index in range(LAYERS):
        theirs, layer = GptOssAttention(config, index), encoding.at_layer(index)
        ours = attention_like(theirs)
        sink = layer.sink()
        assert sink is not None
        theirs.sinks.data = sink
        window = SIZE if config.layer_types[index] == "sliding_attention" else LENGTH
        visible = (distance >= 0) & (distance < window)
        expected, _ = theirs(x, angles, additive_mask(visible))
        actual = ours(x, POSITIONS[0], layer)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_llama4_equals_transformers(configured: Configured) -> None:
    """Outputs of whole attention layers: chunks, layers without RoPE, and their temperature."""
    torch.manual_seed(0)
    config: Any = Llama4TextConfig(
        num_hidden_layers=LAYERS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        attention_chunk_size=SIZE,
        attention_bias=True,
        floor_scale=TRAIN_LENGTH,
        use_qk_norm=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        **DIMENSIONS,
    )
    config._attn_implementation = "eager"
    angles = Llama4TextRotaryEmbedding(config)(torch.zeros(1), POSITIONS)
    encoding = hybrid(configured, "llama4", f"encoding.first.size={SIZE}")
    x, later = torch.randn(2, LENGTH, HEADS * HEAD_DIM), POSITIONS.T < POSITIONS
    for index in range(LAYERS):
        theirs, layer = Llama4TextAttention(config, index), encoding.at_layer(index)
        ours = attention_like(theirs)
        chunk = SIZE if config.layer_types[index] == "chunked_attention" else LENGTH
        visible = ~later & (POSITIONS.T // chunk == POSITIONS // chunk)
        expected, _ = theirs(x, angles, additive_mask(visible))
        actual = ours(x, POSITIONS[0], layer)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
