"""The first rungs to positional encodings, as articles build them up; each adds to the stream.

    integers         x_m + m in every channel
    scaled_integers  x_m + m / (T - 1) in every channel: 0 at the first token, 1 at the last
    binary           x_m + bits, channel c getting floor(m / 2^c) mod 2

x [B, T, D], positions m [T]. "You could have designed state of the art positional encoding"
(Fleetwood 2024) tells all three; it scales by 1/T, where others number [0, 1] through both ends
as here. It also stretches fewer than D digits over the width: channel c then shows digit
floor(c digits / D), and positions repeat after 2^digits.

A layer norm takes out what all channels have in common: in a pre-norm host with
model.norm=layer_norm the first two are the same as no positions at all; rms_norm keeps them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry, along_sequence

SIGN_BIT = 63


class Integers(Encoding):
    """The position itself: far larger than the tokens' values, and without a bound."""

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + along_sequence(pos, "integers")[:, None].to(x.dtype)


class ScaledIntegers(Encoding):
    """The position as a share of the sequence's last one, T - 1 where none are given."""

    limitations: Mapping[str, str] = {"prefix": "positions are divided by the last one at hand"}

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        steps = along_sequence(pos, "scaled_integers").double()
        share = steps / steps.max().clamp(min=1)
        return x + share[:, None].to(x.dtype)


class Binary(Encoding):
    """The position's last `digits` binary digits (as many as channels where null)."""

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
        shift = digit.clamp(max=SIGN_BIT)  # 0 in a position, as is every digit beyond
        bits = along_sequence(pos, "binary").long()[:, None] >> shift & 1
        return x + bits.to(x.dtype)
