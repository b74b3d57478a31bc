"""DAPE, data-adaptive positional encoding (Zheng et al. 2024, arXiv:2405.14722; version 1).

    score(i, j) = x + B + f([x ; B]),   x [H] = q_i . k_j / sqrt(d),   B [H] the static bias

f is Linear(2H, mlp_width), LeakyReLU(0.01), Linear(mlp_width, H), with PyTorch's initialization.
For each pair (i, j), the input of f is the logits of all heads, followed by their biases, as in the
authors' repository (chuanyang-Zheng/DAPE). Every layer has its own f and its own static bias, even
for KERPLE and FIRE, which on their own share their parameters across layers. The FIRE in the DAPE
repository differs from the FIRE paper (half the initial threshold, LeakyReLU). Here `inner=fire`
follows the FIRE paper; its `init_threshold` can be halved.
"""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from posenc.encodings.base import Encoding, Geometry, PerLayer
from posenc.encodings.wrapper import EncodingFactory

UNSUPPORTED_HOOKS = (
    "positions", "embed", "rotate", "rotation_index", "content_bias", "normalize", "value_bias",
    "window", "mask", "sink", "max_length", "set_training_progress",
)  # fmt: skip


class Dape(PerLayer):
    """The bias of `inner` plus an MLP of the logits and biases of all heads."""

    def __init__(self, geometry: Geometry, *, inner: EncodingFactory, mlp_width: int = 32) -> None:
        super().__init__(geometry)
        if mlp_width < 1:
            raise ValueError(f"mlp_width={mlp_width} must be at least 1")
        layers, heads = geometry.layers, geometry.heads
        self.inner = nn.ModuleList(inner(replace(geometry, layers=1)) for _ in range(layers))
        self.limitations = require_pure_bias(self.static_encoding(0)).limitations
        self.first_weight, self.first_offset = linear(layers, 2 * heads, mlp_width)
        self.second_weight, self.second_offset = linear(layers, mlp_width, heads)

    def static_encoding(self, layer: int) -> Encoding:
        """Return the encoding whose bias is B in that layer."""
        return cast(Encoding, self.inner[layer]).at_layer(0)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        bias, inputs = self.bias_and_inputs(q, k, distance, pos_q)
        first, second = (
            p[self.layer].to(inputs.dtype) for p in (self.first_weight, self.second_weight)
        )
        offsets = (p[self.layer].to(inputs.dtype) for p in (self.first_offset, self.second_offset))
        a, b = (offset[:, None, None] for offset in offsets)
        hidden = leaky_relu(torch.einsum("nh,bhij->bnij", first, inputs) + a, 0.01)
        return bias + torch.einsum("hn,bnij->bhij", second, hidden) + b

    def bias_and_inputs(
        self, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the static bias and the inputs [B, 2H, R, K] of f: logits, then biases."""
        dtype = torch.promote_types(q.dtype, torch.float32)
        logits = q.to(dtype) @ k.to(dtype).mT * self.geometry.head_dim**-0.5  # [B, H, R, K]
        head = torch.arange(q.shape[1], device=q.device)[:, None, None]
        bias = cast(Tensor, self.static_encoding(self.layer).bias(head, distance.to(dtype), pos_q))
        return bias, torch.cat([logits, bias.expand_as(logits)], dim=1)


def require_pure_bias(encoding: Encoding) -> Encoding:
    """Return the encoding; raises ValueError unless `bias` is the only hook it uses."""
    unsupported = [hook for hook in UNSUPPORTED_HOOKS if encoding.overrides(hook)]
    if unsupported or not encoding.overrides("bias"):
        reason = f"uses {', '.join(unsupported)}" if unsupported else "has no bias"
        raise ValueError(
            f"inner={type(encoding).__name__} {reason}; choose an encoding that only adds a bias,"
            f" such as alibi, kerple_log or fire"
        )
    return encoding


def linear(layers: int, in_features: int, out_features: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Return weights [layers, out_features, in_features] and biases, initialized like nn.Linear."""
    bound = in_features**-0.5
    weight = torch.empty(layers, out_features, in_features).uniform_(-bound, bound)
    bias = torch.empty(layers, out_features).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(bias)
