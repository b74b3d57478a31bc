"""Absolute positions as integers or bits, added to the hidden states (Fleetwood 2024).

    integers         x_m + m in every channel
    scaled_integers  x_m + m / (T - 1) in every channel: 0 at the first token, 1 at the last
    binary           x_m + bits, with floor(m / 2^c) mod 2 in channel c

x [B, T, D], positions m [T]. These are the first steps of "You could have designed state of the art
positional encoding" (Fleetwood 2024), which scales by 1/T; dividing by T - 1 includes both ends of
[0, 1]. Fewer than D binary digits are stretched over the width: channel c then holds digit
floor(c digits / D), and positions repeat after 2^digits.

A layer norm removes the mean over the channels: in a pre-norm model with
model.norm=layer_norm the first two are equivalent to no positional encoding; rms_norm keeps them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry, require_sequence

SIGN_BIT = 63


class Integers(Encoding):
    """The position itself: unbounded, and soon much larger than the token embeddings."""

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + require_sequence(pos, "integers")[:, None].to(x.dtype)


class ScaledIntegers(Encoding):
    """The position divided by the sequence's last one, T - 1 by default."""

    limitations: Mapping[str, str] = {"prefix": "positions are divided by the sequence's last one"}

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        steps = require_sequence(pos, "scaled_integers").double()
        fraction = steps / steps.max().clamp(min=1)
        return x + fraction[:, None].to(x.dtype)


class Binary(Encoding):
    """The lowest `digits` binary digits of the position; null means one per channel."""

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
        shift = digit.clamp(max=SIGN_BIT)  # the sign bit of a position is 0, like all higher digits
        bits = require_sequence(pos, "binary").long()[:, None] >> shift & 1
        return x + bits.to(x.dtype)
