"""CoPE, contextual positions (Golovneva et al. 2024, 2405.18719, the appendix's listing).

    g_ij = sigma(q_i . k_j / sqrt(d)),   p_ij = min(sum_{l=j}^{i} g_il, limit - 1)
    score(i, j) += (1 - w) q_i . e[floor p_ij] + w q_i . e[ceil p_ij],   w = p_ij - floor p_ij

The own key is counted: p_ii = g_ii. e [layers, d, limit] starts at zero and is shared by the heads.
The sources disagree on the scale: the listing adds q . e as it is, the authors' repository
(facebookresearch/RAM) divides it by sqrt(d) too (`scaled`), but for its option --cope-nodiv.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer


class Cope(PerLayer):
    """A trained vector for each position, positions counted in what the query calls a token."""

    def __init__(self, geometry: Geometry, *, limit: int = 64, scaled: bool = False) -> None:
        super().__init__(geometry)
        if limit < 2:
            raise ValueError(f"limit={limit} leaves a single position for all; give 2 or more")
        self.scaled = scaled
        self.table = nn.Parameter(torch.zeros(geometry.layers, geometry.head_width, limit))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(dtype), k.to(dtype)
        scale = self.geometry.head_width**-0.5
        gates = (q @ k.mT * scale).sigmoid().tril(k.shape[-2] - q.shape[-2])  # [B, H, R, K]
        counted = gates.flip(-1).cumsum(-1, dtype=torch.float64).flip(-1)
        scores = q @ self.table[self.layer].to(dtype)  # [B, H, R, limit]
        return interpolate(scores * scale if self.scaled else scores, counted)


def interpolate(values: Tensor, places: Tensor) -> Tensor:
    """Between the `values` [..., N] at 0 .. N - 1, linearly at `places` [..., K]; past the end, it.

    A place counts by its distance from the one below, which alone has a gradient.
    """
    places = places.clamp(max=values.shape[-1] - 1)
    below, above = (values.gather(-1, p.long()) for p in (places.floor(), places.ceil()))
    return below + (places - places.floor()).to(values.dtype) * (above - below)
