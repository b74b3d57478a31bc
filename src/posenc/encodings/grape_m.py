"""Contextual GRAPE-M: RoPE with learned phases (model-architectures/GRAPE, grape-m-ctx).

    q_i -> R(Phi_i) q_i,  k_j -> R(Phi_j) k_j,   Phi_t = sum_{l < t} g(w . x_l + b)

R(Phi) rotates pair c by Phi f_c. w [layers, D] ~ N(0, 0.25/D), b [layers] and ln f [layers, d/2]
are learnable; f starts as RoPE's frequencies. g(z) is softplus(z) in some versions of the
repository and sigmoid(z / 16) in others, which initialize w to 0 (not done here). In both, b starts
at ln(e^rate - 1), so that g starts near `initial_rate` with softplus, and near 0.39 with sigmoid if
the rate is 0.001. The repository rotates in the opposite direction, which is equivalent to
permuting the channels. q, k [B, H, T, d]; pos is not used.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.rope import Layout, rotate_by_angles
from posenc.encodings.spectra import geometric


class GrapeM(PerLayer):
    """Rotates by a phase that grows by a positive, content-dependent step per token."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        gate: Literal["softplus", "sigmoid"] = "softplus",
        initial_rate: float = 0.001,
        base: float = 10000.0,
        layout: Layout = "half",
    ) -> None:
        super().__init__(geometry)
        if geometry.head_dim % 2 or not 0 < initial_rate < 100:
            raise ValueError(
                f"the head dimension {geometry.head_dim} must be even, and"
                f" initial_rate={initial_rate} positive and less than 100"
            )
        self.gate, self.layout = gate, layout
        length = geometry.train_length
        frequencies, _ = geometric(geometry.head_dim, length, length, base=base)
        self.log_frequencies = nn.Parameter(frequencies.log().float().repeat(geometry.layers, 1))
        std = 0.5 * geometry.width**-0.5
        self.weight = nn.Parameter(std * torch.randn(geometry.layers, geometry.width))
        gate_bias = math.log(math.expm1(initial_rate))
        self.offset = nn.Parameter(torch.full((geometry.layers,), gate_bias))

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = self.log_frequencies[self.layer].double().exp()
        angles = self.phases(x)[..., None, None] * frequencies  # [B, T, 1, d/2]
        return rotate_by_angles(q, k, angles, self.layout)

    def phases(self, x: Tensor) -> Tensor:
        """Return Phi [B, T] in float64 for hidden states x [B, T, D]."""
        products = x.double() * self.weight[self.layer].double()  # autocast would downcast x @ w
        logits = products.sum(-1) + self.offset[self.layer].double()
        steps = softplus(logits) if self.gate == "softplus" else (logits / 16).sigmoid()
        return steps.cumsum(-1) - steps
