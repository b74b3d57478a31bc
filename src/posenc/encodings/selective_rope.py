"""Selective RoPE (Movahedi et al. 2025, arXiv:2511.17388).

    q_i -> R(A_i) q_i,  k_j -> R(A_j) k_j,   A_t = theta * sum_{l <= t} conv(W2 W1 n(x))_l

This follows the authors' code (timurcarstensen/selective-rope, modules/rotary.py). R rotates every
pair of channels of every head by its own angle. n divides the part of x of each head by its L2
norm, conv is causal and depthwise, and theta_p = base^(-2p/d) is fixed. W1 [layers, rank, D],
W2 [layers, H d/2, rank] and the convolution [layers, H d/2, conv_width] are initialized like
nn.Linear and nn.Conv1d. The repository's options for a bias, a phase gate and other
parametrizations are off by default and not included. q, k [B, H, T, d]; pos is not used.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.rope import rotate_by_angles
from posenc.encodings.spectra import geometric

EPSILON = 1e-6


class SelectiveRope(PerLayer):
    """Rotates by angles that accumulate over the tokens and depend on their content."""

    def __init__(
        self, geometry: Geometry, *, rank: int = 16, conv_width: int = 4, base: float = 500000.0
    ) -> None:
        super().__init__(geometry)
        if geometry.head_dim % 2 or rank < 1 or conv_width < 1:
            raise ValueError(
                f"the head dimension {geometry.head_dim} must be even, and rank={rank} and"
                f" conv_width={conv_width} at least 1"
            )
        layers, pairs = geometry.layers, geometry.width // 2
        self.down = uniform_parameter(geometry.width, layers, rank, geometry.width)
        self.up = uniform_parameter(rank, layers, pairs, rank)
        self.kernel = uniform_parameter(conv_width, layers, pairs, conv_width)
        length = geometry.train_length
        self.theta, _ = geometric(geometry.head_dim, length, length, base=base)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        angles = (self.phases(x) * self.theta.to(x.device))[..., None, :]  # [B, H, T, 1, d/2]
        return rotate_by_angles(q, k, angles, "half")

    def phases(self, x: Tensor) -> Tensor:
        """Return the phases [B, H, T, d/2] in float64, which autocast does not downcast."""
        parts = x.double().unflatten(-1, (self.geometry.heads, -1))
        normed = (parts * (parts.square().sum(-1, keepdim=True) + EPSILON).rsqrt()).flatten(-2)
        down, up, kernel = (p[self.layer].double() for p in (self.down, self.up, self.kernel))
        states = pad(up @ (down @ normed.mT), (kernel.shape[-1] - 1, 0))
        increments = conv1d(states, kernel[:, None], groups=len(kernel))  # [B, H d/2, T]
        return increments.cumsum(-1).unflatten(1, (self.geometry.heads, -1)).mT


def uniform_parameter(fan_in: int, *shape: int) -> nn.Parameter:
    """Return a parameter initialized like the weight of an nn.Linear with this fan-in."""
    bound = fan_in**-0.5
    return nn.Parameter(nn.init.uniform_(torch.empty(shape), -bound, bound))
