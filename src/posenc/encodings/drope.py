"""DroPE: train with an encoding, drop it for the last part (Gelberg et al. 2025, 2512.12167).

After 1 - `dropped` of the training's steps every layer goes on without the inner one. Past the
training length the scores of such a model are multiplied by 1 + scale ln(T / L) (appendix; 0.412
for a model trained from scratch, 0.103 for SmolLM, each fitted there).
"""

import math

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import Inner, Wrapper


class Drope(Wrapper):
    """The inner encoding at first, none at last."""

    def __init__(
        self, geometry: Geometry, *, inner: Inner, dropped: float = 0.125, scale: float = 0.412
    ) -> None:
        super().__init__(geometry, inner)
        if not 0 < dropped < 1 or scale < 0:
            raise ValueError(
                f"dropped={dropped} is a share of the training, above 0 and below 1;"
                f" scale={scale} must be 0 or above"
            )
        self.dropped, self.scale = dropped, scale
        self.none = Encoding(geometry)
        self.gone = False

    @property
    def here(self) -> Encoding:
        return self.none if self.gone else super().here

    def set_training_progress(self, fraction: float) -> None:
        super().set_training_progress(fraction)
        self.gone = fraction > 1 - self.dropped

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.gone)

    def set_extra_state(self, state: Tensor) -> None:
        self.gone = bool(state)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.here.rotate(x, q, k, pos)
        longer = q.shape[2] / self.geometry.train_length
        if self.gone and longer > 1:
            q = q * (1 + self.scale * math.log(longer))
        return q, k
