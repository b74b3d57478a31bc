"""The hooks through which an encoding acts on a Transformer; by default they change nothing.

Shapes: B batch, T tokens, K keys (consecutive tokens), R queries (the last R of those K tokens),
H heads, d head dimension, D model width. `pos` holds positions [T] or coordinates [B, T, axes].
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

MAX_WIDTH, MAX_LAYERS = 2**17, 2**9
"""Several times the dimensions of the largest published models; larger values are likely typos."""


@dataclass(frozen=True)
class Geometry:
    """Model dimensions that every encoding receives: width in channels, train_length in tokens."""

    width: int
    heads: int
    layers: int
    train_length: int

    def __post_init__(self) -> None:
        for name in ("width", "heads", "layers", "train_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name, limit in (("width", MAX_WIDTH), ("layers", MAX_LAYERS)):
            if getattr(self, name) > limit:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be at most {limit:,}, several times"
                    f" the value of the largest published models"
                )
        if self.width % self.heads:
            raise ValueError(
                f"heads={self.heads} does not divide width={self.width};"
                f" change model.width or model.heads"
            )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


Factors = tuple[Tensor | None, Tensor]
"""Query and key factors of a bias, each [B or 1, H, T, r]; None means a factor of ones."""


class Encoding(nn.Module):
    """No positional encoding (NoPE); every other encoding overrides some of these hooks.

    A subclass takes a Geometry first, then its own parameters as keyword arguments. `limitations`
    maps each of the following properties that does not hold to the reason why:

        causal             no token attends to a later one
        prefix_consistent  a token's output does not depend on how many tokens follow
        shift_invariant    scores depend only on differences between positions
        any_length         sequences of any length can be encoded

    `shift_invariant` is not expected of encodings that add position embeddings to hidden states.
    """

    limitations: Mapping[str, str] = {}

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Return the positions of `length` tokens, for data that does not provide them.

        The shape is [T], or [1, T, axes] for coordinates.
        """
        return torch.arange(length, device=device)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Return the hidden states [B, T, D] that enter the first layer, with positions added."""
        return x

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys [B, H, T, d'] that encode positions.

        x [B, T, D] is the input of the attention layer, after the norm; d' may differ from d.
        """
        return q, k

    def rotation_index(self, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        """Return the index [R, K] of the rotation for the score of each query and key.

        Used by encodings whose `rotate` returns n rotated copies of q and k, concatenated along
        the channels (d' = n d). Indices are int64, from 0 to n-1; None means that there is only one
        rotation. pos_q [R, 1] and pos_k [1, K] are relative to the first position.
        """
        return None

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        """Return the bias that is added to the scores at each `distance` (query minus key).

        Keys after the query have negative distances; their scores are masked, but their biases must
        be finite. Head indices, distances and query positions broadcast against each other, as
        [H, 1, 1], [R, K] or [1, K], and [R, 1]; the bias must be an elementwise function of them,
        with the floating-point dtype of `distance`. For coordinates, distances are Euclidean,
        [B, 1, R, K], and query positions are distances from the origin, [B, 1, R, 1].
        """
        return None

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        """Return a bias [B, H, R, K] that depends on the content of the tokens.

        x [B, K, D] is as in `rotate`, which returned q [B, H, R, d'] and k [B, H, K, d'].
        `distance` [R, K] and `pos_q` [R, 1] are as in `bias`; keys after the query have negative
        distances. The bias has the dtype of `distance`.
        """
        return None

    def content_lookback(self) -> int:
        """Return how many tokens before a key affect the `content_bias` of that key.

        With a window, kernels pass `content_bias` these tokens in addition to those in the window.
        """
        return 0

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        """Return float64 factors whose product is the entire bias, up to a constant per query.

        x, q and k are as in `content_bias`, for all T tokens. None means that the bias has no such
        factorization.
        """
        return None

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the attention weights [B, H, R, K] of scores, which are -inf where masked."""
        return scores.softmax(dim=-1)

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        """Return a term [B, H, R, d] that is added to the attention output, or None.

        `weights` are the attention weights [B, H, R, K]; the term has their dtype. `distance` is as
        in `bias`.
        """
        return None

    def window(self) -> int | None:
        """Return the window size in tokens; None means no limit.

        Each query attends to at most this many of the most recent keys, including its own; `mask`
        may hide some of them.
        """
        return None

    def mask(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Return a mask [R, K], True where a query may attend to a key; None means no mask.

        query [R, 1] and key [1, K] are indices of tokens. Keys after the query are always masked;
        the mask must let every query attend to its own key.
        """
        return None

    def sink(self) -> Tensor | None:
        """Return a logit per head [H] in the softmax's denominator; None means no sink."""
        return None

    def max_length(self) -> int | None:
        """Return the maximum sequence length; None means that there is no limit."""
        return None

    def at_layer(self, index: int) -> "Encoding":
        """Return the encoding of layer `index`; by default every layer uses the same one."""
        return self

    def set_training_progress(self, fraction: float) -> None:
        """Set the fraction of training that will be complete after the next step.

        Called before each training step, and when weights are loaded, with the fraction at which
        they were saved.
        """

    def overrides(self, hook: str) -> bool:
        """Return whether this encoding overrides the hook with that name."""
        return getattr(type(self), hook) is not getattr(Encoding, hook)


def layer_encodings(encoding: Encoding) -> list[Encoding]:
    """Return the encoding of every layer."""
    return [encoding.at_layer(index) for index in range(encoding.geometry.layers)]


class PerLayer(Encoding):
    """An encoding that differs between layers; its parameters have the shape [layers, ...]."""

    layer = 0

    def at_layer(self, index: int) -> Self:
        encoding = copy.copy(self)  # shares the parameters
        encoding.layer = index
        return encoding
