"""DAPE, a bias that a perceptron adapts to the data (Zheng et al. 2024, 2405.14722; version 1).

    score(i, j) = x + B + f([x ; B]),   x [H] = q_i . k_j / sqrt(d),   B [H] the static bias

f is Linear(2H, hidden), LeakyReLU(0.01), Linear(hidden, H), over the heads of one pair (i, j),
logits first, as in the authors' repository (chuanyang-Zheng/DAPE), with PyTorch's initialisation.
Perceptron and static bias are every layer's own, also KERPLE and FIRE, which all layers share
where they stand alone. The FIRE inside the repository's DAPE is not the paper's FIRE (half the
initial threshold, LeakyReLU); here it is the option `fire`, whose `threshold` can be halved.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from posenc.encodings.base import Encoding, Geometry, PerLayer

BEYOND_A_BIAS = (
    "positions", "embed", "rotate", "content_bias", "value_bias", "window", "max_length",
    "set_training_progress",
)  # fmt: skip


class Dape(PerLayer):
    """The bias of `inner`, corrected by what a perceptron makes of it and of all heads' logits."""

    def __init__(
        self, geometry: Geometry, *, inner: Callable[[Geometry], Encoding], hidden: int = 32
    ) -> None:
        super().__init__(geometry)
        if hidden < 1:
            raise ValueError(f"hidden={hidden} must be 1 or more")
        layers, heads = geometry.layers, geometry.heads
        self.inner = nn.ModuleList(inner(replace(geometry, layers=1)) for _ in range(layers))
        self.limitations = only_a_bias(self.static(0)).limitations
        self.first, self.first_offset = _linear(layers, 2 * heads, hidden)
        self.second, self.second_offset = _linear(layers, hidden, heads)

    def static(self, layer: int) -> Encoding:
        """The encoding whose bias is B in that layer."""
        return cast(Encoding, self.inner[layer]).at_layer(0)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        logits = q.to(dtype) @ k.to(dtype).mT * self.geometry.head_width**-0.5  # [B, H, R, K]
        head = torch.arange(q.shape[1], device=q.device)[:, None, None]
        bias = cast(Tensor, self.static(self.layer).bias(head, distance.to(dtype), pos_q))
        seen = torch.cat([logits, bias.expand_as(logits)], dim=1)
        first, second = (p[self.layer].to(dtype) for p in (self.first, self.second))
        offsets = (p[self.layer].to(dtype) for p in (self.first_offset, self.second_offset))
        a, b = (offset[:, None, None] for offset in offsets)
        hidden = leaky_relu(torch.einsum("nh,bhij->bnij", first, seen) + a, 0.01)
        return bias + torch.einsum("hn,bnij->bhij", second, hidden) + b


def only_a_bias(encoding: Encoding) -> Encoding:
    """The encoding itself; ValueError where it adds no bias of distance, or acts elsewhere too."""
    others = [hook for hook in BEYOND_A_BIAS if encoding.overrides(hook)]
    if others or not encoding.overrides("bias"):
        does = f"acts through {', '.join(others)}" if others else "adds no bias"
        raise ValueError(
            f"inner={type(encoding).__name__} {does}; give an encoding that is a bias of distance"
            f" and no more, such as alibi, kerple_log or fire"
        )
    return encoding


def _linear(layers: int, inputs: int, outputs: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights [layers, outputs, inputs] and biases of linear maps, drawn as nn.Linear draws."""
    bound = inputs**-0.5
    weight = torch.empty(layers, outputs, inputs).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(torch.empty(layers, outputs).uniform_(-bound, bound))
