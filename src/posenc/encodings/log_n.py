"""Logits scaled with the log of the number of tokens so far (Su 2021, kexue.fm/archives/8823).

q_i -> q_i max(1, ln(i + 1) / ln L),  i from 0,  L the training length

As in rerope_patch.py of bojone/rerope: nothing changes up to the training length. All earlier
tokens count, those outside a window too. q, k [B, H, T, d], in the order of the tokens.
"""

import math

import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.wrapper import Inner, Wrapper


class LogN(Wrapper):
    """The inner encoding, its queries longer past the training length."""

    def __init__(self, geometry: Geometry, *, inner: Inner) -> None:
        super().__init__(geometry, inner)
        if geometry.train_length < 2:
            raise ValueError("train_length=1 has no logarithm to divide by; give 2 or more")

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.here.rotate(x, q, k, pos)
        seen = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=torch.float64)
        scale = (seen.log() / math.log(self.geometry.train_length)).clamp(min=1)
        return (q * scale[:, None]).to(q.dtype), k
