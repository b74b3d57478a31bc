"""The cost of an encoding: parameters, buffers, its attention kernel, and time."""

import time

import torch

from posenc.attention.choice import attend, choose
from posenc.config.errors import plural
from posenc.encodings.base import Encoding
from posenc.inspect.encoding.hook_outputs import random_content
from posenc.inspect.encoding.inspected_encoding import (
    InspectedEncoding,
    PropertyGroup,
    PropertyValue,
)

NUM_TOKENS = 1024
REPETITIONS = 5
PARAMETERS = "parameters"


def measure_size(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Count the trainable parameters, and all other values in parameters and buffers."""
    encoding = inspected.encoding
    trainable = sum(p.numel() for p in encoding.parameters() if p.requires_grad)
    stored = sum(tensor.numel() for tensor in (*encoding.parameters(), *encoding.buffers()))
    layers = plural(inspected.config.model.layers, "layer")
    return [
        PropertyValue(float(trainable), f"trainable, in {layers}"),
        PropertyValue(float(stored - trainable), "values in buffers and frozen parameters"),
    ]


@torch.no_grad()
def measure_attention(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Time the kernel that kernel=auto selects, relative to attention without an encoding."""
    length = inspected.clamp_length(NUM_TOKENS)
    encoding = inspected.build({}).float()
    x, q, k = (content.float() for content in random_content(inspected, length))
    pos = inspected.positions(length)
    layer, nope = encoding.at_layer(0), Encoding(encoding.geometry)
    choice = choose(layer, q.device, q.dtype, pos)

    def seconds(encoding: Encoding) -> float:
        start = time.perf_counter()
        rotated_q, rotated_k = encoding.rotate(x, q, k, pos)
        attend("auto", encoding, x, rotated_q, rotated_k, q, pos)
        return time.perf_counter() - start

    timings = [(seconds(layer), seconds(nope)) for _ in range(REPETITIONS)]
    layer_times, nope_times = zip(*timings, strict=True)
    ratio = min(layer_times) / min(nope_times)
    description = (
        f"forward pass of one layer's attention at {length} tokens, relative to NoPE; fastest of"
        f" {REPETITIONS} (posenc bench measures it more carefully)"
    )
    return [
        PropertyValue(choice.name, "selected by kernel=auto in float32"),
        PropertyValue(ratio, description),
    ]


GROUPS = (
    PropertyGroup("cost", [PARAMETERS, "buffers"], measure_size),
    PropertyGroup("cost", ["kernel", "time"], measure_attention),
)
