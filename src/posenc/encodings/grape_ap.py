"""GRAPE-AP, path-integral additive GRAPE (Zhang et al. 2026, arXiv:2512.07805, eq. 5.1-5.2).

    score_h(t, j) += m_h sum_{l=j+1}^{t} ln sigma(a(t, l) / r),   p_t = W_p x_t
    relative:    a(t, l) = (R(t) n(p_t)) . (R(l) n(p_l)) = n(p_t) . (R(l - t) n(p_l))
    paper:       a(t, l) = n(p_t) . (R(l) n(p_l))
    repository:  a(t, l) = p_t . (R(l) n(p_l))

m are ALiBi's slopes, n is RMS normalization, and R(l) rotates all pairs of the r channels by l
radians. W_p [layers, H, r, D] ~ N(0, 0.25/D). Eq. 5.1 does not rotate the query side, so the bias
depends on absolute positions, modulo 2 pi. The authors' code (model-architectures/GRAPE,
llama-mha-grape-ap-v1.py) does not normalize the query side either, and it rotates in the opposite
direction, which is equivalent to permuting the channels. `relative` is not in the paper.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, rms_norm

from posenc.encodings.alibi import authors_slopes
from posenc.encodings.base import Geometry, PerLayer

EPSILON = torch.finfo(torch.float32).eps  # PyTorch's default for float32, used for every dtype


class GrapeAP(PerLayer):
    """A penalty summed over the tokens from key to query; tokens similar to the query add less."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        variant: Literal["relative", "paper", "repository"] = "relative",
        position_width: int = 8,
    ) -> None:
        super().__init__(geometry)
        if position_width < 2 or position_width % 2:
            raise ValueError(f"position_width={position_width} must be even and at least 2")
        self.variant = variant
        self.slopes = torch.tensor(authors_slopes(geometry.heads), dtype=torch.float64)
        shape = geometry.layers, geometry.heads, position_width, geometry.width
        self.weight = nn.Parameter(0.5 * geometry.width**-0.5 * torch.randn(shape))
        if variant != "relative":
            self.limitations = {
                "shift_invariant": "only keys are rotated, not the query they are compared with"
            }

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        if distance.ndim > 2 and self.variant != "relative":
            raise ValueError(
                f"grape_ap with variant={self.variant} does not take coordinates; choose"
                f" variant=relative"
            )
        dtype, (rows, length) = torch.promote_types(q.dtype, torch.float32), distance.shape[-2:]
        p = x.to(dtype)[:, None] @ self.weight[self.layer].to(dtype).mT  # [B, H, K, r]
        keys = rms_norm(p, p.shape[-1:], eps=EPSILON)
        queries = (p if self.variant == "repository" else keys)[:, :, -rows:]
        a, b = keys.chunk(2, dim=-1)
        rotated_keys = torch.cat([-b, a], dim=-1)  # R(pi/2) keys
        angle = -distance.double() + (0 if self.variant == "relative" else pos_q.double())
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        similarity = cos * (queries @ keys.mT) + sin * (queries @ rotated_keys.mT)
        steps = logsigmoid(similarity / p.shape[-1]).double().tril(length - rows)
        sums = steps.sum(-1, keepdim=True) - steps.cumsum(-1)
        return self.slopes.to(q.device, dtype)[:, None, None] * sums.to(dtype)
