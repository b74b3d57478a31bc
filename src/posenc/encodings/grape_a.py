"""GRAPE-A, additive GRAPE with gates from q or k (Zhang et al. 2026, arXiv:2512.07805, eq. 4.6).

    score_h(i, j) += -(i - j) m_h omega_h (g(v_h . q_i / sqrt(d)) + g(u_h . k_j / sqrt(d)))

with g = softplus, ALiBi's slopes m and omega = softplus(w) for learnable w [layers, H]. From
model-architectures/GRAPE (llama-mha-grape-a-{keygated,querygated,querykeygated}.py): u and v
[layers, H, d] are learnable and divided by their norms, omega is initially `initial_rate`, and
`gate=key` and `gate=query` omit the other gate. The paper's formula has neither the slopes nor the
norms. The repository normalizes q and k first; that is a property of the model and not included.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from posenc.encodings.alibi import authors_slopes
from posenc.encodings.base import Factors, Geometry, PerLayer

EPSILON = 1e-6


class GrapeA(PerLayer):
    """ALiBi whose slopes depend on the content of the key, of the query, or of both."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        gate: Literal["key", "query", "both"] = "key",
        initial_rate: float = 1.0,
    ) -> None:
        super().__init__(geometry)
        if not 0 < initial_rate < 100:
            raise ValueError(f"initial_rate={initial_rate} must be positive and less than 100")
        layers, heads, width = geometry.layers, geometry.heads, geometry.head_dim
        self.slopes = torch.tensor(authors_slopes(heads), dtype=torch.float64)
        inverse_softplus = math.log(math.expm1(initial_rate))
        self.rate = nn.Parameter(torch.full((layers, heads), inverse_softplus))
        shape, std = (layers, heads, width), width**-0.5
        self.key = None if gate == "query" else nn.Parameter(std * torch.randn(shape))
        self.query = None if gate == "key" else nn.Parameter(std * torch.randn(shape))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        query_gates, key_gates = self._gates(q, self.query), self._gates(k, self.key)
        return -distance * self._slopes(q) * (query_gates + key_gates.mT)

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        """Return the factors of j a_i - i b_j + j b_j = -(i - j) (a_i + b_j) + i a_i."""
        if pos.ndim > 1:  # the distance between coordinates does not factorize
            return None
        position = pos.double()[:, None].expand(*k.shape[:3], 1)
        query_gates, key_gates = (
            self._gates(states, vectors).double()
            for states, vectors in ((q, self.query), (k, self.key))
        )
        queries, keys = [], []
        if self.query is not None:
            queries, keys = [query_gates], [position]
        if self.key is not None:
            queries += [position, torch.ones_like(position)]
            keys += [-key_gates, key_gates * position]
        return torch.cat(queries, -1), self._slopes(k).double() * torch.cat(keys, -1)

    def _slopes(self, states: Tensor) -> Tensor:
        """Return the slopes m omega [H, 1, 1]."""
        dtype = torch.promote_types(states.dtype, torch.float32)
        slopes = softplus(self.rate[self.layer].to(dtype)) * self.slopes.to(states.device, dtype)
        return slopes[:, None, None]

    def _gates(self, states: Tensor, vectors: Tensor | None) -> Tensor:
        """Return softplus(u . state / sqrt(d)) [B, H, T, 1] of states [B, H, T, d].

        If the gate is omitted, returns 0 with shape [1, 1, 1, 1].
        """
        dtype = torch.promote_types(states.dtype, torch.float32)
        if vectors is None:
            return states.new_zeros((1, 1, 1, 1), dtype=dtype)
        direction = normalize(vectors[self.layer].to(dtype), dim=-1, eps=EPSILON)
        return softplus(states.to(dtype) @ direction[..., None] * states.shape[-1] ** -0.5)
