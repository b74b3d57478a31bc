"""FoX, the Forgetting Transformer (Lin et al. 2025, arXiv:2503.02130), and CABLE's variant.

    score_h(i, j) += sum_{l=j+1}^{i} ln f_h(l) = F_h(i) - F_h(j),   F_h(t) = sum_{l<=t} ln f_h(l)

FoX:   f_h(l) = sigma(w_h . x_l + b_h), the fraction of the past that is kept (gate `keep`)
CABLE: ln f_h(l) = -softplus(w_h . x_l + b_h): sigma is the fraction that is lost (gate `forget`).
       This is the form in the repository of Veisi et al. (2025, arXiv:2503.08067; axiomlab/Cable),
       which also omits the 1/sqrt(d) on q . k; here the model keeps it. cable.py has the paper's
       form.

In both, w [layers, H, D] ~ N(0, 0.02^2) and b = 0 initially. x-transformers initializes FoX's b to
5, so that every token keeps 0.993 of the past instead of one half.

Data-independent (`FoxFixed`): b_h = -ln(expm1(1 / T_h)), so that ln f_h = -1 / T_h, for decay times
T_h that are evenly spaced on a log scale. If not trainable, this is ALiBi with different slopes.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from posenc.encodings.base import Factors, Geometry, PerLayer
from posenc.encodings.formula_bias import FormulaBias


class CumulativeBias(PerLayer, ABC):
    """A bias g_h(i) (F_h(i) - F_h(j)) with cumulative sums F over tokens and query weights g."""

    @abstractmethod
    def weights_and_sums(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the weights g (None for 1) and the sums F, [B, H, T, 1] in float64."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        weights, sums = self.weights_and_sums(x)
        queries = slice(-q.shape[-2], None)
        bias = (sums[:, :, queries] - sums.mT).to(dtype)
        return bias if weights is None else weights[:, :, queries].to(dtype) * bias

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors:
        weights, sums = self.weights_and_sums(x)
        return weights, -sums


class Fox(CumulativeBias):
    """One gate per token and head, computed from the input of the attention layer."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        gate: Literal["keep", "forget"] = "keep",
        initial_bias: float = 0.0,
    ) -> None:
        super().__init__(geometry)
        self.sign = 1.0 if gate == "keep" else -1.0
        self.weight = per_head_weight(geometry)
        self.offset = nn.Parameter(torch.full(self.weight.shape[:2], float(initial_bias)))

    def weights_and_sums(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        logits = project(x, self.weight[self.layer]) + self.offset[self.layer][:, None, None]
        return None, logsigmoid(self.sign * logits).cumsum(-2)


class FoxFixed(PerLayer, FormulaBias):
    """One gate per head, the same for every token; with `trainable`, every layer learns its own."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        decay_time_min: float = 128.0,
        decay_time_max: float = 2048.0,
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        if not 1 <= decay_time_min <= decay_time_max:
            raise ValueError(
                f"decay_time_min={decay_time_min} must be at least 1 token and at most"
                f" decay_time_max={decay_time_max}"
            )
        log_range = math.log(decay_time_min), math.log(decay_time_max)
        times = torch.linspace(*log_range, geometry.heads, dtype=torch.float64).exp()
        logits = -(1 / times).expm1().log().repeat(geometry.layers, 1)
        self.logits = nn.Parameter(logits.float()) if trainable else logits

    def log_gates(self, device: torch.device) -> Tensor:
        """Return ln f [H] in float64."""
        return logsigmoid(self.logits[self.layer].to(device, torch.float64))

    def coefficients(self, like: Tensor) -> tuple[Tensor]:
        return (self.log_gates(like.device).to(like.dtype),)

    @staticmethod
    def formula(distance: Tensor, *coefficients: Tensor) -> Tensor:
        (log_gate,) = coefficients
        return log_gate * distance

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        if pos.ndim > 1:  # the distance between coordinates does not factorize
            return None
        sums = (self.log_gates(x.device)[:, None] * pos.double())[None, ..., None]
        return None, -sums


def per_head_weight(geometry: Geometry) -> nn.Parameter:
    """Return weights [layers, H, D] ~ N(0, 0.02^2) that map hidden states to a scalar per head."""
    shape = geometry.layers, geometry.heads, geometry.width
    return nn.Parameter(nn.init.normal_(torch.empty(shape), std=0.02))


def project(x: Tensor, weight: Tensor) -> Tensor:
    """Return W x [B, H, T, 1] in float64 for x [B, T, D], multiplied in at least float32."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return (weight.to(dtype) @ x.to(dtype).mT).double()[..., None]
