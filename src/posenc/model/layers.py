"""The sub-layers of a Transformer block."""

import torch
from torch import Tensor, nn

from posenc.attention import Kernel
from posenc.encodings.base import Encoding
from posenc.model.linear import Linear

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


class Attention(nn.Module):
    """Causal multi-head self-attention; position enters through `encoding`, if anywhere."""

    def __init__(self, width: int, heads: int, attend: Kernel, *, bias: bool) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.qkv = Linear(width, 3 * width, bias=bias)
        self.out = Linear(width, width, bias=bias)

    def forward(self, x: Tensor, pos: Tensor, encoding: Encoding) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, H, T, d] each
        q, k = encoding.rotate(x, q, k, pos)
        with torch.autocast(x.device.type, enabled=False):
            mixed = self.attend(encoding, x, q, k, v, pos)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    """out(dropout(activation(up(x))))."""

    def __init__(
        self, width: int, hidden: int, activation: str, dropout: float, *, bias: bool
    ) -> None:
        super().__init__()
        self.up = Linear(width, hidden, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.out = Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(self.activation(self.up(x))))


class GatedFeedForward(nn.Module):
    """SwiGLU: out(dropout(silu(gate(x)) * up(x))) (Shazeer 2020, 2002.05202)."""

    def __init__(self, width: int, hidden: int, dropout: float, *, bias: bool) -> None:
        super().__init__()
        self.up = Linear(width, hidden, bias=bias)
        self.gate = Linear(width, hidden, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.out = Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(nn.functional.silu(self.gate(x)) * self.up(x)))


def norm_layer(name: str, width: int, *, bias: bool) -> nn.Module:
    """A layer norm or an RMS norm over the width."""
    if name == "layer_norm":
        return nn.LayerNorm(width, bias=bias)
    return nn.RMSNorm(width)
