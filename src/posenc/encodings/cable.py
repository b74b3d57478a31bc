"""CABLE as its paper defines it (Veisi et al. 2025, 2503.08067, eq. 2-7).

    score_h(i, j) += -g_h(i) (S_h(i) - S_h(j)),   S_h(t) = sum_{l<=t} ReLU(c_h . x_l)
    g_h(i) = softplus(s_h . x_i), or 1 in the paper's CABLE_NW (`weighted: false`)

c and s [layers, H, D] ~ N(0, 0.02), without biases. The paper calls the bias a penalty and leaves
its sign to the reader. The authors' repository has neither the ReLU nor g: that form, of FoX's
family, is the option `cable`. Which of the two made the paper's tables is not known.
"""

from torch import Tensor
from torch.nn.functional import softplus

from posenc.encodings.base import Geometry
from posenc.encodings.fox import Forgetting, drawn, project


class Cable(Forgetting):
    """Steps that every token sets, 0 at least, and a weight of distance that the query sets."""

    def __init__(self, geometry: Geometry, *, weighted: bool = True) -> None:
        super().__init__(geometry)
        self.steps = drawn(geometry)
        self.weights = drawn(geometry) if weighted else None

    def terms(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        sums = -project(x, self.steps[self.layer]).relu().cumsum(-2)
        if self.weights is None:
            return None, sums
        return softplus(project(x, self.weights[self.layer])), sums
