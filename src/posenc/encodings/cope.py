"""CoPE, contextual position encoding (Golovneva et al. 2024, arXiv:2405.18719, appendix).

    g_ij = sigma(q_i . k_j / sqrt(d)),   p_ij = min(sum_{l=j}^{i} g_il, npos_max - 1)
    score(i, j) += (1 - w) q_i . e[floor p_ij] + w q_i . e[ceil p_ij],   w = p_ij - floor p_ij

The sum includes the query's own key: p_ii = g_ii. e [layers, d, npos_max] starts at zero and is
shared by the heads. The paper and the code disagree on the scale: the listing adds q . e unscaled,
whereas the authors' repository (facebookresearch/RAM) divides it by sqrt(d) unless --cope-nodiv is
passed; `scaled` selects this division.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer


class Cope(PerLayer):
    """Learned embeddings of contextual positions, which are sums of query-key gates."""

    def __init__(self, geometry: Geometry, *, npos_max: int = 64, scaled: bool = False) -> None:
        super().__init__(geometry)
        if npos_max < 2:
            raise ValueError(
                f"npos_max={npos_max} must be at least 2, or all tokens have the same position"
            )
        self.scaled = scaled
        self.table = nn.Parameter(torch.zeros(geometry.layers, geometry.head_dim, npos_max))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(dtype), k.to(dtype)
        scale = self.geometry.head_dim**-0.5
        gates = (q @ k.mT * scale).sigmoid().tril(k.shape[-2] - q.shape[-2])  # [B, H, R, K]
        scores = q @ self.table[self.layer].to(dtype)  # [B, H, R, npos_max]
        scores = scores * scale if self.scaled else scores
        return interpolate(scores, gates.flip(-1).cumsum(-1, dtype=torch.float64).flip(-1))


def interpolate(values: Tensor, points: Tensor) -> Tensor:
    """Return `values` [..., N], given at 0 .. N - 1, interpolated linearly at `points` [..., K].

    Points must not be negative; those past N - 1 get the last value. The gradient with respect to a
    point is the difference between the values at the two integers around it.
    """
    points = points.clamp(max=values.shape[-1] - 1)
    below = values.gather(-1, points.long())
    above = values.gather(-1, points.ceil().long())
    return below + points.frac().to(values.dtype) * (above - below)
