"""Calls an encoding's hooks on random inputs."""

from collections.abc import Iterator

import torch
from torch import Tensor

from posenc.attention.reference import (
    AttentionInputs,
    attention_weights,
    pairwise_distances,
    positions_at,
    score_bias,
    score_dtype,
    visible_keys,
)
from posenc.check.encoding_under_test import SEED
from posenc.encodings.base import Encoding
from posenc.model.transformer import seed_cpu

NUM_QUERIES = 2
"""The number of queries, at the end of the sequence, for which biases are computed."""


def random_inputs(
    encoding: Encoding, length: int, *, batch: int = 1, seed: int = 0
) -> AttentionInputs:
    """Return random inputs in float64, with values that bfloat16 represents exactly."""
    geometry = encoding.geometry
    shape = (batch, geometry.heads, length, geometry.head_dim)
    q, k, v = (_random(10 * seed + number, *shape) for number in (1, 2, 3))
    seed_cpu(SEED)
    pos = encoding.positions(length, torch.device("cpu"))
    x = _random(10 * seed, batch, length, geometry.width)
    return AttentionInputs(x, q, k, v, pos)


def convert(
    inputs: AttentionInputs, hidden_dtype: torch.dtype, attention_dtype: torch.dtype
) -> AttentionInputs:
    """Return the inputs with x as `hidden_dtype`, and q, k and v as `attention_dtype`."""
    q, k, v = (tensor.to(attention_dtype) for tensor in (inputs.q, inputs.k, inputs.v))
    return AttentionInputs(inputs.x.to(hidden_dtype), q, k, v, inputs.pos)


def float32_inputs(
    encoding: Encoding, length: int, *, batch: int = 1, seed: int = 0
) -> AttentionInputs:
    """Return `random_inputs` in float32."""
    inputs = random_inputs(encoding, length, batch=batch, seed=seed)
    return convert(inputs, torch.float32, torch.float32)


def distinct_layers(encoding: Encoding) -> Iterator[int]:
    """Yield the indices of the first layer and of those whose encodings may differ from it."""
    for layer in range(encoding.geometry.layers):
        if layer == 0 or encoding.at_layer(layer) is not encoding:
            yield layer


def call_layer_hooks(encoding: Encoding, layer: int, inputs: AttentionInputs) -> dict[str, Tensor]:
    """Return the outputs of a layer's hooks; biases are for the last NUM_QUERIES tokens only."""
    seed_cpu(SEED)
    encoding.eval()
    outputs = {"embed": encoding.embed(inputs.x, inputs.pos)}
    layer_encoding = encoding.at_layer(layer)
    outputs["rotate"], outputs["rotate (keys)"] = layer_encoding.rotate(
        inputs.x, inputs.q, inputs.k, inputs.pos
    )
    shape = outputs["rotate"].shape
    q, k = (_random(seed, *shape).to(inputs.q.dtype) for seed in (4, 5))
    keys = slice(0, shape[-2])
    rows = slice(max(0, keys.stop - NUM_QUERIES), keys.stop)
    with torch.autocast("cpu", enabled=False):
        masked_out = ~visible_keys(layer_encoding, rows, keys, inputs.x.device)
        bias = score_bias(layer_encoding, inputs.x, q, k, inputs.pos, rows, keys)
        if bias is not None:
            outputs["bias"] = bias.masked_fill(masked_out, 0)
        dtype = score_dtype(q.dtype)
        scores = (q[:, :, rows].to(dtype) @ k.to(dtype).mT).masked_fill(masked_out, -torch.inf)
        pos_q, pos_k = positions_at(inputs.pos, rows), positions_at(inputs.pos, keys)
        distance = pairwise_distances(pos_q, pos_k, dtype)
        weights = attention_weights(layer_encoding, scores)
        value_bias = layer_encoding.value_bias(weights, distance)
    return outputs if value_bias is None else {**outputs, "value_bias": value_bias}


def _random(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).bfloat16().double()
