"""RoPE-Mixed, for coordinates (Heo et al. 2024, arXiv:2403.13298, section 3.2; naver-ai/rope-vit).

    q_i -> R(p_i) q_i,  k_j -> R(p_j) k_j,   R(p) rotates pair c by the angle sum_a p_a f_ac

with frequencies f [layers, axes, H, d/2] that are learned per layer and head. The pairs are divided
evenly into as many parts as there are axes. In each part, where c counts from 0, the initial
frequencies are base^(-2 axes c/d) times a direction. The directions of a head's parts are the rows
of a random rotation matrix. With one axis, the initial frequencies are RoPE's. q, k [B, H, T, d];
pos [B, T, axes], or [T], which is used on every axis.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.coordinates import to_coordinates
from posenc.encodings.rope import Layout, rotate_by_angles
from posenc.encodings.spectra import geometric


class RopeMixed(PerLayer):
    """Rotates every pair by a learned linear function of the coordinates."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        axes: int = 2,
        base: float = 10.0,
        layout: Layout = "interleaved",
    ) -> None:
        super().__init__(geometry)
        width = geometry.head_dim
        if axes < 1 or width % (2 * axes):
            raise ValueError(
                f"axes={axes} must be at least 1, and the head dimension {width} a multiple of"
                f" 2 * axes"
            )
        self.axes, self.layout = axes, layout
        length = geometry.train_length
        magnitudes, _ = geometric(width // axes, length, length, base=base)
        directions = random_rotations(geometry.layers, geometry.heads, axes)
        frequencies = directions[..., None] * magnitudes  # [layers, H, parts, axes, d/2/axes]
        self.frequencies = nn.Parameter(frequencies.permute(0, 3, 1, 2, 4).flatten(3).float())

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        points = to_coordinates(self.axes, pos, "rope_mixed")
        frequencies = self.frequencies[self.layer].double()
        angles = torch.einsum("bta,ahc->bhtc", points, frequencies)
        return rotate_by_angles(q, k, angles[..., None, :], self.layout)


def random_rotations(layers: int, heads: int, axes: int) -> Tensor:
    """Return rotation matrices [layers, heads, axes, axes], uniformly distributed, in float64."""
    gaussian = torch.randn(layers, heads, axes, axes, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # uniform over O(axes)
    return torch.cat([q[..., :-1, :], q[..., -1:, :] * q.det()[..., None, None]], dim=-2)
