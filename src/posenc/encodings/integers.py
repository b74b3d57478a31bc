"""Absolute positions as integers or bits, added to the hidden states (Fleetwood 2024).

    integers         x_m + m in every channel
    scaled_integers  x_m + m / (T - 1) in every channel: 0 at the first token, 1 at the last
    binary           x_m + bits, with floor(m / 2^c) mod 2 in channel c

x [B, T, D], positions m [T]. These are the first steps of "You could have designed state of the art
positional encoding" (Fleetwood 2024). Fleetwood divides by T; dividing by T - 1 covers [0, 1],
including both ends. With fewer than D binary digits, channel c holds digit floor(c digits / D), and
the encoding repeats every 2^digits positions.

Layer norm subtracts the mean over the channels. In a pre-norm model with model.norm=layer_norm the
first two encodings are therefore equivalent to no positional encoding; with rms_norm they are not.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.coordinates import require_1d_positions

SIGN_BIT = 63


class Integers(Encoding):
    """Adds the position itself, which soon becomes much larger than the token embeddings."""

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + require_1d_positions(pos, "integers")[:, None].to(x.dtype)


class ScaledIntegers(Encoding):
    """Adds the position divided by the last position of the sequence, T - 1 by default."""

    limitations: Mapping[str, str] = {
        "prefix_consistent": "positions are divided by the last position of the sequence"
    }

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        positions = require_1d_positions(pos, "scaled_integers").double()
        fraction = positions / positions.max().clamp(min=1)
        return x + fraction[:, None].to(x.dtype)


class Binary(Encoding):
    """Adds the lowest `digits` binary digits of the position; None means one digit per channel."""

    def __init__(self, geometry: Geometry, *, digits: int | None = None) -> None:
        super().__init__(geometry)
        self.digits = geometry.width if digits is None else digits
        if not 1 <= self.digits <= geometry.width:
            raise ValueError(
                f"digits={digits} must be from 1 to the model's width of {geometry.width};"
                f" change encoding.digits or model.width"
            )

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        width = self.geometry.width
        digit = torch.arange(width, device=pos.device) * self.digits // width
        shift = digit.clamp(max=SIGN_BIT)  # a position's sign bit is 0, like all its higher digits
        bits = require_1d_positions(pos, "binary").long()[:, None] >> shift & 1
        return x + bits.to(x.dtype)
