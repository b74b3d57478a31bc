"""Log-n scaling of attention logits past the training length (Su 2021, kexue.fm/archives/8823).

q_i -> q_i max(1, ln(i + 1) / ln L),  i from 0,  L the training length

As in rerope_patch.py of bojone/rerope, nothing changes up to the training length. i + 1 counts all
tokens up to the query, including tokens outside a window. q, k [B, H, T, d], in token order.
"""

import math

import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class LogN(Wrapper):
    """The inner encoding, with queries scaled up beyond the training length."""

    def __init__(self, geometry: Geometry, *, inner: EncodingFactory) -> None:
        super().__init__(geometry, inner)
        if geometry.train_length < 2:
            raise ValueError(
                "train_length=1 must be at least 2, because its logarithm is a divisor"
            )

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.active.rotate(x, q, k, pos)
        tokens = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=torch.float64)
        scale = (tokens.log() / math.log(self.geometry.train_length)).clamp(min=1)
        return (q * scale[:, None]).to(q.dtype), k
