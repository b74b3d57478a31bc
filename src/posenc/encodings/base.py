"""The places where position can enter a Transformer; each is a hook whose default is the identity.

Shapes: B batch, T tokens, K a run of them as keys, R the last of these as queries (R <= K), H
heads, d head width, D model width.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Geometry:
    """What the host tells an encoding of itself; widths and lengths are in channels and tokens."""

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
                f" give model.width or model.heads so that they do"
            )

    @property
    def head_width(self) -> int:
        return self.width // self.heads


Factors = tuple[Tensor | None, Tensor | None]
"""What a query and what a key bring to a product, [B|1, H, T, r] each; None brings 1."""


class Encoding(nn.Module):
    """No positional encoding (NoPE), and what every other one overrides.

    A subclass takes a Geometry first, then its own knobs by keyword. `limitations` declares which
    of the properties `causal`, `prefix` (a token's output does not depend on later tokens' being
    there), `shift` (positions count by their differences; what adds to the stream claims nothing)
    and `extrapolates` it does not have, each with the reason.
    """

    limitations: Mapping[str, str] = {}

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Coordinates [T] of `length` tokens, when the data brings none of its own."""
        return torch.arange(length, device=device)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """The stream [B, T, D] before the first layer, position added."""
        return x

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys [B, H, T, d'] with position in them; x [B, T, D] enters the layer."""
        return q, k

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        """Score added at `distance` (query minus key), from positions alone, pointwise.

        The arguments broadcast against each other, as [H, 1, 1], [R, T] and [R, 1] or as scalars.
        `distance` is floating, in the precision that the result is wanted in.
        """
        return None

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        """Score [B, H, R, K] added from what the tokens say.

        x [B, K, D] enters the layer, q [B, H, R, d'] and k [B, H, K, d'] come from `rotate`;
        `distance` [R, K] and `pos_q` [R, 1] are as in `bias`, and what lies ahead is negative.
        """
        return None

    def bias_factors(self, x: Tensor, pos: Tensor) -> list[Factors] | None:
        """Factors whose products sum to the whole bias, up to a constant per query; None for none.

        In float64 where they grow with length, in the precision of x, or float32, where bounded.
        """
        return None

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        """What attention weights [B, H, R, K] add to the attention's output, [B, H, R, d]."""
        return None

    def window(self) -> int | None:
        """How many tokens back a key may lie, the query's own included; None for all."""
        return None

    def max_length(self) -> int | None:
        """The longest sequence that can be encoded at all; None for any."""
        return None

    def at_layer(self, index: int) -> "Encoding":
        """The encoding of layer `index`; the same in every layer unless overridden."""
        return self

    def set_training_progress(self, fraction: float) -> None:
        """Told by the host, before every step, which share of the training ends with it."""

    def overrides(self, hook: str) -> bool:
        """Whether the hook of that name is more than the identity here."""
        return getattr(type(self), hook) is not getattr(Encoding, hook)


class PerLayer(Encoding):
    """An encoding that knows its layer; weights that differ by it are stacked as [layers, ...]."""

    layer = 0

    def at_layer(self, index: int) -> Self:
        view = copy.copy(self)  # shares the weights
        view.layer = index
        return view


def along_sequence(pos: Tensor, name: str) -> Tensor:
    """The positions [T] as they are; ValueError for coordinates [B, T, axes]."""
    if pos.ndim > 1:
        raise ValueError(
            f"{name} takes one position for each token, not coordinates of {pos.shape[-1]} axes;"
            f" rope and sinusoidal split their width between axes"
        )
    return pos
