"""Base class for encodings that modify another encoding."""

from collections.abc import Callable

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Factors, Geometry, PerLayer, layer_encodings

EncodingFactory = Callable[[Geometry], Encoding]
OUTPUT_HOOKS = (
    "embed",
    "rotate",
    "rotation_index",
    "bias",
    "content_bias",
    "normalize",
    "value_bias",
    "window",
    "mask",
    "sink",
)
"""The hooks that change what a model computes at given positions."""


class Wrapper(PerLayer):
    """Delegates every hook to the inner encoding, unless a subclass overrides it."""

    def __init__(self, geometry: Geometry, inner: EncodingFactory) -> None:
        super().__init__(geometry)
        self.inner = inner(geometry)
        self.limitations = {**self.inner.limitations, **self.limitations}

    @property
    def active(self) -> Encoding:
        """The encoding that the hooks of this layer delegate to."""
        return self.inner.at_layer(self.layer)

    def positions(self, length: int, device: torch.device) -> Tensor:
        return self.inner.positions(length, device)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.active.embed(x, pos)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return self.active.rotate(x, q, k, pos)

    def rotation_index(self, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        return self.active.rotation_index(pos_q, pos_k)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        return self.active.bias(head, distance, pos_q)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        return self.active.content_bias(x, q, k, distance, pos_q)

    def content_lookback(self) -> int:
        return self.active.content_lookback()

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        return self.active.bias_factors(x, q, k, pos)

    def normalize(self, scores: Tensor) -> Tensor:
        return self.active.normalize(scores)

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        return self.active.value_bias(weights, distance)

    def window(self) -> int | None:
        return self.active.window()

    def mask(self, query: Tensor, key: Tensor) -> Tensor | None:
        return self.active.mask(query, key)

    def sink(self) -> Tensor | None:
        return self.active.sink()

    def max_length(self) -> int | None:
        return self.inner.max_length()

    def set_training_progress(self, fraction: float) -> None:
        self.inner.set_training_progress(fraction)

    def overrides(self, hook: str) -> bool:
        subclass_overrides = getattr(type(self), hook) is not getattr(Wrapper, hook)
        return subclass_overrides or self.active.overrides(hook)


def innermost_encoding(encoding: Encoding) -> Encoding:
    """Return the active encoding inside all wrappers."""
    while isinstance(encoding, Wrapper):
        encoding = encoding.active
    return encoding


def equals_nope(encoding: Encoding) -> bool:
    """Return whether the encoding equals NoPE: no layer overrides any of OUTPUT_HOOKS."""
    layers = layer_encodings(encoding)
    return not any(layer.overrides(hook) for layer in layers for hook in OUTPUT_HOOKS)


def require_attention_only(encoding: Encoding, reason: str) -> Encoding:
    """Return the encoding; raises ValueError if it acts outside the layers.

    It does so if it overrides `embed`, or if the positions that it generates are not 0 to T-1.
    """
    if encoding.overrides("embed"):
        raise ValueError(
            f"{type(encoding).__name__} takes effect before the first layer, so {reason}; choose an"
            f" encoding that acts only in attention, such as rope, alibi or t5"
        )
    if encoding.overrides("positions"):
        length = 2 * encoding.geometry.train_length
        pos = encoding.positions(length, torch.device("cpu"))
        if pos.shape != (length,) or (pos != torch.arange(length)).any():
            raise ValueError(
                f"{type(encoding).__name__} generates the positions of all layers, so {reason};"
                f" choose an encoding that uses positions 0 to T-1, such as rope, alibi or t5"
            )
    return encoding
