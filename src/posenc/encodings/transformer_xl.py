"""Transformer-XL's relative position encoding (Dai et al. 2019, arXiv:1901.02860, section 3.3).

    score(i, j) = (q_i . k_j + q_i . W R_(i-j) + u . k_j + v . W R_(i-j)) / sqrt(d)
    R_n = (sin n f_0, .., sin n f_(D/2-1), cos n f_0, .., cos n f_(D/2-1)),   f_k = base^(-2k/D)

Every layer has its own W [H d, D]; u and v [H, d] are shared by all layers, as in the authors'
PyTorch code. All are initialized from N(0, 0.02^2), and R is as wide as the model. The model itself
computes the q . k term. The authors' dropout on R and memory of earlier segments are omitted.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.relative_scores import relative_scores

STD = 0.02


class TransformerXL(PerLayer):
    """Keys projected from sinusoids of the distance, with content and position biases per head."""

    def __init__(
        self, geometry: Geometry, *, base: float = 10000.0, clamp_len: int | None = None
    ) -> None:
        super().__init__(geometry)
        width, heads = geometry.width, geometry.heads
        if width % 2 or base <= 0:
            raise ValueError(f"model.width={width} must be even, and base={base} must be positive")
        if clamp_len is not None and clamp_len < 1:
            raise ValueError(f"clamp_len={clamp_len} must be at least 1, or null for no clamping")
        self.clamp_len = clamp_len
        self.frequencies = float(base) ** (-2 * torch.arange(width // 2).double() / width)
        self.project = nn.Parameter(torch.randn(geometry.layers, width, width) * STD)
        self.u = nn.Parameter(torch.randn(heads, geometry.head_dim) * STD)
        self.v = nn.Parameter(torch.randn(heads, geometry.head_dim) * STD)

    def vectors(self, distance: Tensor) -> Tensor:
        """Return W R [H, U, d] for distances [U]."""
        angles = distance.double()[:, None] * self.frequencies.to(distance.device)
        sinusoids = torch.cat([angles.sin(), angles.cos()], dim=-1).to(distance.dtype)
        projected = sinusoids @ self.project[self.layer].to(distance.dtype).mT  # [U, H d]
        return projected.unflatten(-1, (self.geometry.heads, -1)).transpose(0, 1)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        if self.clamp_len is not None:
            distance = distance.clamp(max=self.clamp_len)
        u, v = (p.to(distance.dtype)[:, None] for p in (self.u, self.v))  # [H, 1, d]
        content = u @ k.to(distance.dtype).mT  # [B, H, 1, K]
        return (content + relative_scores(q + v, distance, self.vectors)) * q.shape[-1] ** -0.5
