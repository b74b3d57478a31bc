"""CABLE as its paper defines it (Veisi et al. 2025, arXiv:2503.08067, eq. 2-7).

    score_h(i, j) += -g_h(i) (S_h(i) - S_h(j)),   S_h(t) = sum_{l<=t} ReLU(c_h . x_l)
    g_h(i) = softplus(s_h . x_i), or 1 in the paper's CABLE_NW (`weighted: false`)

c and s [layers, H, D] ~ N(0, 0.02^2), without biases. The paper calls the bias a penalty and does
not state its sign. The authors' repository has neither the ReLU nor g; that form, a variant of FoX,
is `encoding=cable`. It is not known which of the two produced the paper's tables.
"""

from torch import Tensor
from torch.nn.functional import softplus

from posenc.encodings.base import Geometry
from posenc.encodings.fox import CumulativeBias, per_head_weight, project


class Cable(CumulativeBias):
    """A non-negative step per token, summed from key to query, times a weight per query."""

    def __init__(self, geometry: Geometry, *, weighted: bool = True) -> None:
        super().__init__(geometry)
        self.steps = per_head_weight(geometry)
        self.weights = per_head_weight(geometry) if weighted else None

    def weights_and_sums(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        sums = -project(x, self.steps[self.layer]).relu().cumsum(-2)
        if self.weights is None:
            return None, sums
        return softplus(project(x, self.weights[self.layer])), sums
