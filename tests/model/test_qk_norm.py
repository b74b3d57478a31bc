"""Models whose queries and keys are normalized."""

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding

from posenc.attention.choice import kernel_function
from posenc.model.block import Attention
from posenc.model.build import build_encoding, build_model

Configured = Callable[..., DictConfig]
HEADS, HEAD_DIM, LENGTH = 3, 32, 53
WIDTH = HEADS * HEAD_DIM


@pytest.mark.parametrize("kernel", ["reference", "auto"])
def test_attention_equals_that_of_qwen3(configured: Configured, kernel: str) -> None:
    settings = Qwen3Config(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    settings._attn_implementation = "eager"
    theirs = Qwen3Attention(settings, layer_idx=0)
    ours = Attention(WIDTH, HEADS, kernel_function(kernel), bias=False, qk_norm=True)
    with torch.no_grad():
        for norm in (theirs.q_norm, theirs.k_norm):
            norm.weight.copy_(torch.rand(HEAD_DIM) + 0.5)
        parts = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
        ours.qkv.weight.copy_(torch.cat([part.weight for part in parts]))
        ours.out.weight.copy_(theirs.o_proj.weight)
        ours.get_parameter("q_norm").copy_(theirs.q_norm.weight)
        ours.get_parameter("k_norm").copy_(theirs.k_norm.weight)
    overrides = [f"model.width={WIDTH}", f"model.heads={HEADS}", "encoding.layout=half"]
    encoding = build_encoding(configured("encoding=rope", *overrides))
    x, positions = torch.randn(1, LENGTH, WIDTH), torch.arange(LENGTH)
    mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)[None, None]
    angles = Qwen3RotaryEmbedding(settings)(x, positions[None])
    expected, _ = theirs(x, angles, mask)
    torch.testing.assert_close(ours(x, positions, encoding), expected, rtol=0, atol=1e-5)


def test_other_weights_do_not_depend_on_qk_norm(configured: Configured) -> None:
    normalized = build_model(configured("model.qk_norm=true"), 100)
    plain = dict(build_model(configured(), 100).named_parameters())
    for name, parameter in normalized.named_parameters():
        if name.endswith(("q_norm", "k_norm")):
            assert torch.equal(parameter, torch.ones_like(parameter))
        else:
            assert torch.equal(parameter, plain[name])
    head_dim = normalized.encoding.geometry.head_dim
    assert normalized.blocks[0].get_parameter("attention.q_norm").shape == (head_dim,)


def test_the_scale_of_the_queries_does_not_matter(configured: Configured) -> None:
    model = build_model(configured("encoding=alibi", "model.qk_norm=true"), 100)
    tokens = torch.arange(37)[None]
    expected = model(tokens)
    with torch.no_grad():
        model.blocks[1].get_parameter("attention.qkv.weight")[: model.encoding.geometry.width] *= 50
    torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-4)


def test_bfloat16_stays_close_to_float32(configured: Configured) -> None:
    model = build_model(configured("encoding=rope", "model.qk_norm=true"), 100)
    tokens = torch.arange(37)[None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = model.losses(tokens, tokens + 1)
    losses.mean().backward()
    torch.testing.assert_close(losses, model.losses(tokens, tokens + 1), rtol=0.02, atol=0.05)
    gradient = model.blocks[0].get_parameter("attention.k_norm").grad
    assert gradient is not None and gradient.any()
