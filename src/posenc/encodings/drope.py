"""DroPE: train with an encoding, then drop it (Gelberg et al. 2025, 2512.12167).

After a fraction 1 - `dropped_fraction` of training, every layer continues without the inner
encoding. Past the training length the scores of such a model are multiplied by 1 + scale ln(T / L)
(appendix; scale is 0.412 for a model trained from scratch and 0.103 for SmolLM, fitted for each).
"""

import math

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import Inner, Wrapper, equals_nope


class Drope(Wrapper):
    """The inner encoding until it is dropped, none afterwards."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: Inner,
        dropped_fraction: float = 0.125,
        scale: float = 0.412,
    ) -> None:
        super().__init__(geometry, inner)
        if not 0 < dropped_fraction < 1 or scale < 0:
            raise ValueError(
                f"dropped_fraction={dropped_fraction} must be above 0 and below 1,"
                f" scale={scale} 0 or more"
            )
        if equals_nope(self.inner):
            raise ValueError(
                f"inner={type(self.inner).__name__} encodes no positions, so dropping it has no"
                f" effect; choose another, such as rope"
            )
        self.dropped_fraction, self.scale = dropped_fraction, scale
        self.nope = Encoding(geometry)
        self.dropped = False

    @property
    def active(self) -> Encoding:
        return self.nope if self.dropped else super().active

    def set_training_progress(self, fraction: float) -> None:
        super().set_training_progress(fraction)
        self.dropped = fraction > 1 - self.dropped_fraction

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.dropped)

    def set_extra_state(self, state: Tensor) -> None:
        self.dropped = bool(state)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.active.rotate(x, q, k, pos)
        growth = q.shape[2] / self.geometry.train_length
        if self.dropped and growth > 1:
            q = q * (1 + self.scale * math.log(growth))
        return q, k
