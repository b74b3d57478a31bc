"""Position interpolation for ALiBi (Al-Khateeb et al. 2023, arXiv:2310.13017).

    score_h(i, j) += -m_h (i - j) / s,   s = max(1, T / L) or a fixed factor

The slopes m of ALiBi are divided by s, so that in sequences of up to s L tokens, all penalties are
smaller than ALiBi's at distance L. By default, s is computed for each sequence, as in Cerebras's
code (alibi_scaling in modeling_jais.py): the positions that the encoding generates are divided by
s, but positions that the data provides are not. With a fixed factor, all distances are divided by
it. The encoding can be applied to a trained ALiBi model without fine-tuning.
"""

import torch
from torch import Tensor

from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Factors, Geometry, layer_encodings
from posenc.encodings.drope import LENGTH_SCALING_REASON, contains_drope
from posenc.encodings.spectra.context_extension import scaling_factor
from posenc.encodings.wrapper import EncodingFactory, Wrapper, innermost_encoding


class AlibiPi(Wrapper):
    """ALiBi with slopes divided by `factor` or, if that is None, by max(1, T / L)."""

    def __init__(
        self, geometry: Geometry, *, inner: EncodingFactory, factor: float | None = None
    ) -> None:
        super().__init__(geometry, inner)
        layers = map(innermost_encoding, layer_encodings(self.inner))
        if contains_drope(self.inner) or not all(isinstance(layer, Alibi) for layer in layers):
            raise ValueError(
                f"inner={type(self.inner).__name__} must be ALiBi in every layer; choose alibi, or"
                f" a wrapper around it such as window"
            )
        self.factor = factor
        # 1 if `factor` is None: `positions` then scales the distances.
        self.fixed_factor = scaling_factor(factor, geometry.train_length, geometry.train_length)
        if factor is None:
            self.limitations = {**self.limitations, "prefix_consistent": LENGTH_SCALING_REASON}

    def positions(self, length: int, device: torch.device) -> Tensor:
        pos, train_length = self.inner.positions(length, device), self.geometry.train_length
        if self.factor is not None or length <= train_length:
            return pos
        return pos.double() * (train_length / length)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        return self.active.bias(head, distance / self.fixed_factor, pos_q / self.fixed_factor)

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        return self.active.bias_factors(x, q, k, pos.double() / self.fixed_factor)
