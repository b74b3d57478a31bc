"""ComRoPE, for coordinates (Yu et al. 2025, arXiv:2506.03737; Longin-Yu/ComRoPE, model.py).

    q_i -> R(p_i) q_i,  k_j -> R(p_j) k_j,   R(p) rotates block n by exp(s_n (P_n - P_n^T))

    s_n = sum_a p_a/E theta_an        ComRoPE-LD: the axes' matrices are multiples of each other
    s_n = p_a/E,  a = n mod axes      ComRoPE-AP: every block belongs to one axis

The matrices of different axes commute, so scores depend only on p_i - p_j. P is learned per layer,
head and block of b channels; theta, per layer, axis and block. Initially, P ~ N(0, init_std^2) and
theta ~ N(0, 1). The authors scale coordinates to [0, 1]; here, they are divided by the `extent` E.
The authors' random shifts of positions in training are not included. q, k [B, H, T, d]; pos [B, T,
axes], or [T], which is used on every axis.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.coordinates import to_coordinates
from posenc.encodings.liere import checked_extent, count_blocks, rotate_blocks, scaled_matrix_exp


class ComRope(PerLayer):
    """Rotates blocks of channels by exponentials of learned matrices that commute."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        form: Literal["ld", "ap"] = "ld",
        axes: int = 2,
        block_size: int = 4,
        init_std: float = 1.0,
        extent: float | None = None,
    ) -> None:
        super().__init__(geometry)
        self.axes, blocks = axes, count_blocks(geometry, axes, block_size)
        if geometry.head_dim % block_size or (form == "ap" and blocks < axes):
            raise ValueError(
                f"block_size={block_size} must divide the head dimension {geometry.head_dim};"
                f" form=ap also needs at least {axes} blocks, one for each axis"
            )
        if init_std <= 0:
            raise ValueError(f"init_std={init_std} must be positive")
        self.extent = checked_extent(geometry, extent)
        shape = (geometry.layers, geometry.heads, blocks, block_size, block_size)
        self.matrices = nn.Parameter(init_std * torch.randn(shape))
        if form == "ld":
            self.theta = nn.Parameter(torch.randn(geometry.layers, axes, blocks))
        else:
            axis_of_block = torch.arange(blocks) % axes
            self.theta = (axis_of_block == torch.arange(axes)[:, None]).expand(
                geometry.layers, -1, -1
            )

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        points = to_coordinates(self.axes, pos, "comrope") / self.extent
        scales = points @ self.theta[self.layer].to(points)  # [B, T, n]
        matrices = self.matrices[self.layer].double()
        return rotate_blocks(q, k, scaled_matrix_exp(matrices - matrices.mT, scales))
