"""The hooks through which position enters a Transformer; the default of each is the identity.

Shapes: B batch, T tokens, K keys (consecutive tokens), R queries (the last R of these K tokens),
H heads, d head width, D model width.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Geometry:
    """Facts about the model that every encoding receives: widths in channels, length in tokens."""

    width: int
    heads: int
    layers: int
    train_length: int

    def __post_init__(self) -> None:
        for name in ("width", "heads", "layers", "train_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")
        if self.width % self.heads:
            raise ValueError(
                f"heads={self.heads} do not divide width={self.width};"
                f" change model.width or model.heads"
            )

    @property
    def head_width(self) -> int:
        return self.width // self.heads


Factors = tuple[Tensor | None, Tensor]
"""The queries' and the keys' factors of a bias, [B or 1, H, T, r] each; None means ones."""


class Encoding(nn.Module):
    """No positional encoding (NoPE); every other encoding overrides some of these hooks.

    A subclass takes a Geometry first, then its own parameters as keyword arguments. `limitations`
    gives the reason for each of these properties that the encoding does not have:

        causal        no token sees a later one
        prefix        a token's output does not depend on how many tokens follow
        shift         scores depend on differences of positions only
        extrapolates  sequences of any length can be encoded

    An encoding that adds position embeddings to the hidden states makes no claim about `shift`.
    """

    limitations: Mapping[str, str] = {}

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Return the coordinates [T] of `length` tokens, for data that has none of its own."""
        return torch.arange(length, device=device)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Return the hidden states [B, T, D] before the first layer, with positions added."""
        return x

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys [B, H, T, d'] that encode positions.

        x [B, T, D] are the hidden states that enter the layer; d' may differ from d.
        """
        return q, k

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        """Return the score added at `distance` (query minus key), a pointwise function of position.

        The arguments broadcast against each other, as [H, 1, 1], [R, K] and [R, 1] or as scalars.
        `distance` is floating point; the result has its precision.
        """
        return None

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        """Return the scores [B, H, R, K] added from token content.

        x [B, K, D] enters the layer, q [B, H, R, d'] and k [B, H, K, d'] come from `rotate`;
        `distance` [R, K] and `pos_q` [R, 1] are as in `bias`, negative for keys after the query.
        """
        return None

    def bias_factors(self, x: Tensor, pos: Tensor) -> Factors | None:
        """Return factors in float64 whose product is the whole bias, up to a constant per query.

        None means that there is no such form.
        """
        return None

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        """Return what attention weights [B, H, R, K] add to attention's output, [B, H, R, d]."""
        return None

    def window(self) -> int | None:
        """Return how many keys a query sees, its own included; None means all."""
        return None

    def max_length(self) -> int | None:
        """Return the length of the longest sequence that can be encoded; None means any."""
        return None

    def at_layer(self, index: int) -> "Encoding":
        """Return the encoding of layer `index`; by default the same one in every layer."""
        return self

    def set_training_progress(self, fraction: float) -> None:
        """Called before every training step with the fraction of training done after that step."""

    def overrides(self, hook: str) -> bool:
        """Return whether the hook of that name differs from the identity."""
        return getattr(type(self), hook) is not getattr(Encoding, hook)


class PerLayer(Encoding):
    """An encoding that differs by layer; such parameters are stacked as [layers, ...]."""

    layer = 0

    def at_layer(self, index: int) -> Self:
        encoding = copy.copy(self)  # shares the parameters
        encoding.layer = index
        return encoding


def require_sequence(pos: Tensor, name: str) -> Tensor:
    """Return the positions [T] unchanged; raises ValueError for coordinates [B, T, axes]."""
    if pos.ndim > 1:
        raise ValueError(
            f"{name} takes one position per token, not coordinates of {pos.shape[-1]} axes;"
            f" rope and sinusoidal support coordinates"
        )
    return pos
