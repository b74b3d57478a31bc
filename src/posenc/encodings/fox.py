"""FoX, the Forgetting Transformer (Lin et al. 2025, 2503.02130), and CABLE as in its repository.

    score_h(i, j) += sum_{l=j+1}^{i} ln f_h(l) = F_h(i) - F_h(j),   F_h(t) = sum_{l<=t} ln f_h(l)

FoX:   f_h(l) = sigma(w_h . x_l + b_h), the share of the past that is kept (gate `keep`)
CABLE: ln f_h(l) = -softplus(w_h . x_l + b_h), so that sigma is what is forgotten (gate `forget`);
       the form of the authors' repository (axiomlab/Cable; Veisi et al. 2025, 2503.08067), which
       also leaves out the 1/sqrt(d) on q . k: the host keeps it. Its paper's form is in cable.py.

W [layers, H, D] ~ N(0, 0.02), b 0 in both; x-transformers starts FoX's b at 5, where a token
keeps 0.993 instead of a half.

Without data (`FoxFixed`): b_h = -ln(expm1(1 / T_h)), so that ln f_h = -1 / T_h, for times T_h
spaced evenly in their logarithms: ALiBi with other slopes, as long as they are not trained.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from posenc.encodings.base import Factors, Geometry, PerLayer


class Forgetting(PerLayer, ABC):
    """Scores g_h(i) (F_h(i) - F_h(j)) from sums F over the tokens and weights g of the queries."""

    @abstractmethod
    def terms(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """The weights g (None for 1) and the sums F, [B, H, T, 1] in float64."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        weights, sums = self.terms(x)
        rows = slice(-q.shape[-2], None)
        bias = (sums[:, :, rows] - sums.mT).to(dtype)
        return bias if weights is None else weights[:, :, rows].to(dtype) * bias

    def bias_factors(self, x: Tensor, pos: Tensor) -> list[Factors]:
        weights, sums = self.terms(x)
        if weights is None:
            return [(sums, None), (None, -sums)]
        return [(weights * sums, None), (weights, -sums)]


class Fox(Forgetting):
    """A gate for every token and head, from the layer's input; the share that `gate` names."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        gate: Literal["keep", "forget"] = "keep",
        initial_bias: float = 0.0,
    ) -> None:
        super().__init__(geometry)
        self.sign = 1.0 if gate == "keep" else -1.0
        self.weight = drawn(geometry)
        self.offset = nn.Parameter(torch.full(self.weight.shape[:2], float(initial_bias)))

    def terms(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        logits = project(x, self.weight[self.layer]) + self.offset[self.layer][:, None, None]
        return None, logsigmoid(self.sign * logits).cumsum(-2)


class FoxFixed(PerLayer):
    """A gate for every head, whatever the token: the same in all layers, or `trainable` there."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        shortest: float = 128.0,
        longest: float = 2048.0,
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        if not 1 <= shortest <= longest:
            raise ValueError(
                f"shortest={shortest} and longest={longest} are times in tokens;"
                f" give 1 or more, the longer one as longest"
            )
        ends = math.log(shortest), math.log(longest)
        times = torch.linspace(*ends, geometry.heads, dtype=torch.float64).exp()
        logits = -(1 / times).expm1().log().repeat(geometry.layers, 1)
        self.logits = nn.Parameter(logits.float()) if trainable else logits

    def log_gates(self, device: torch.device) -> Tensor:
        """ln f [H] in float64."""
        return logsigmoid(self.logits[self.layer].to(device, torch.float64))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return self.log_gates(distance.device).to(distance.dtype)[head] * distance

    def bias_factors(self, x: Tensor, pos: Tensor) -> list[Factors] | None:
        if pos.ndim > 1:  # a distance between coordinates has no factors
            return None
        sums = (self.log_gates(x.device)[:, None] * pos.double())[None, ..., None]
        return [(sums, None), (None, -sums)]


def drawn(geometry: Geometry) -> nn.Parameter:
    """Maps [layers, H, D] from the stream to one number a head, N(0, 0.02)."""
    shape = geometry.layers, geometry.heads, geometry.width
    return nn.Parameter(nn.init.normal_(torch.empty(shape), std=0.02))


def project(x: Tensor, weight: Tensor) -> Tensor:
    """W x [B, H, T, 1] of x [B, T, D] in float64, formed in float32 or wider."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (weight.to(wide.dtype) @ wide.mT).double()[..., None]
