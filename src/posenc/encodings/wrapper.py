"""An encoding around another."""

from collections.abc import Callable

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Factors, Geometry, PerLayer

Inner = Callable[[Geometry], Encoding]


class Wrapper(PerLayer):
    """Does as its inner encoding does, wherever a subclass does not override it."""

    def __init__(self, geometry: Geometry, inner: Inner) -> None:
        super().__init__(geometry)
        self.inner = inner(geometry)
        self.limitations = {**self.inner.limitations, **self.limitations}

    @property
    def here(self) -> Encoding:
        """The inner encoding of this layer."""
        return self.inner.at_layer(self.layer)

    def positions(self, length: int, device: torch.device) -> Tensor:
        return self.inner.positions(length, device)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.here.embed(x, pos)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return self.here.rotate(x, q, k, pos)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        return self.here.bias(head, distance, pos_q)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        return self.here.content_bias(x, q, k, distance, pos_q)

    def bias_factors(self, x: Tensor, pos: Tensor) -> list[Factors] | None:
        return self.here.bias_factors(x, pos)

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        return self.here.value_bias(weights, distance)

    def window(self) -> int | None:
        return self.here.window()

    def max_length(self) -> int | None:
        return self.inner.max_length()

    def set_training_progress(self, fraction: float) -> None:
        self.inner.set_training_progress(fraction)

    def overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(Wrapper, hook) or self.here.overrides(hook)


def inside_layers(encoding: Encoding, why: str) -> Encoding:
    """The encoding, if it acts inside layers alone; ValueError for one that adds to the stream."""
    if encoding.overrides("embed"):
        raise ValueError(
            f"{type(encoding).__name__} acts before the first layer, so {why};"
            f" give one that acts in attention alone, such as rope, alibi or t5"
        )
    return encoding
