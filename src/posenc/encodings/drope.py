"""DroPE: train with an encoding, then drop it (Gelberg et al. 2025, arXiv:2512.12167).

For the last `dropped_fraction` of training, and in evaluation afterward, no layer uses the inner
encoding. Once it is dropped, scores in sequences of T > L tokens are multiplied by
1 + scale ln(T / L), where L is the training length (appendix; the paper fits a scale of 0.412 for a
model trained from scratch and 0.103 for SmolLM).
"""

import math

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import EncodingFactory, Wrapper, equals_nope

LENGTH_SCALING_REASON = "beyond the training length the scores depend on the length of the sequence"


class Drope(Wrapper):
    """The inner encoding until it is dropped, and no positional encoding afterward.

    Once it is dropped, its limitations and its maximum length no longer apply; `limitations` then
    contains `prefix_consistent` unless `scale` is 0.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        dropped_fraction: float = 0.125,
        scale: float = 0.412,
    ) -> None:
        super().__init__(geometry, inner)
        if not 0 < dropped_fraction < 1 or scale < 0:
            raise ValueError(
                f"dropped_fraction={dropped_fraction} must be positive and less than 1, and"
                f" scale={scale} must be non-negative"
            )
        if equals_nope(self.inner):
            raise ValueError(
                f"inner={type(self.inner).__name__} does not encode positions, so dropping it has"
                f" no effect; choose another encoding, such as rope"
            )
        self.dropped_fraction, self.scale = dropped_fraction, scale
        self.nope = Encoding(geometry)
        self.dropped = False
        self._inner_limitations = self.limitations

    @property
    def active(self) -> Encoding:
        return self.nope if self.dropped else super().active

    def set_training_progress(self, fraction: float) -> None:
        super().set_training_progress(fraction)
        self._set_dropped(fraction > 1 - self.dropped_fraction)

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.dropped)

    def set_extra_state(self, state: Tensor) -> None:
        self._set_dropped(bool(state))

    def _set_dropped(self, dropped: bool) -> None:
        self.dropped = dropped
        reasons = {"prefix_consistent": LENGTH_SCALING_REASON} if self.scale else {}
        self.limitations = reasons if dropped else self._inner_limitations

    def max_length(self) -> int | None:
        return None if self.dropped else super().max_length()

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.active.rotate(x, q, k, pos)
        if self.dropped:
            q = q * length_temperature(q.shape[2], self.geometry.train_length, self.scale)
        return q, k


def contains_drope(encoding: Encoding) -> bool:
    """Return whether the encoding is or contains DroPE, which drops its inner encoding."""
    return any(isinstance(module, Drope) for module in encoding.modules())


def length_temperature(length: int, train_length: int, scale: float) -> float:
    """Return 1 + scale ln(length / train_length), or 1 up to the training length."""
    return 1 + scale * max(0.0, math.log(length / train_length))
