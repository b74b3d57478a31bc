"""A pre-norm Transformer block: causal self-attention, then a feed-forward layer."""

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from posenc.attention import KernelFunction
from posenc.encodings.base import Encoding
from posenc.model.linear import Linear

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "swiglu": nn.SiLU}


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)).

    `dropout` applies to the output of each sub-layer, `activation_dropout` to the hidden units of
    the feed-forward layer. `qk_norm` is explained in `Attention`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        attend: KernelFunction,
        *,
        norm: str,
        activation: str,
        bias: bool,
        dropout: float,
        activation_dropout: float = 0.0,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        check_dropout("dropout", dropout)
        check_dropout("activation_dropout", activation_dropout)
        if feed_forward < 1:
            raise ValueError(f"feed_forward={feed_forward} must be at least 1")
        self.attention = Attention(width, heads, attend, bias=bias, qk_norm=qk_norm)
        self.feed_forward = FeedForward(
            width, feed_forward, activation, activation_dropout, bias=bias
        )
        self.attention_norm = norm_layer(norm, width, bias=bias)
        self.feed_forward_norm = norm_layer(norm, width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, pos: Tensor, encoding: Encoding, scored: Tensor | None = None
    ) -> Tensor:
        """Return the hidden states [B, T, D], or [n, D] if `scored` [B, T] marks n tokens."""
        x = x + self.dropout(self.attention(self.attention_norm(x), pos, encoding))
        return self.add_feed_forward(x if scored is None else x[scored])

    def add_feed_forward(self, x: Tensor) -> Tensor:
        """Return x + feed_forward(norm(x)) for hidden states [..., D]."""
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Attention(nn.Module):
    """Causal multi-head self-attention, computed by the kernel `attend`.

    With `qk_norm`, queries and keys are RMS-normalized over the channels of each head before the
    encoding rotates them, with weights that all heads of the layer share (QK norm: Henry et al.
    2020, arXiv:2010.04245; in this form: Qwen3, arXiv:2505.09388).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        attend: KernelFunction,
        *,
        bias: bool,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.qkv = Linear(width, 3 * width, bias=bias)
        self.out = Linear(width, width, bias=bias)
        self.q_norm = nn.Parameter(torch.ones(width // heads)) if qk_norm else None
        self.k_norm = nn.Parameter(torch.ones(width // heads)) if qk_norm else None

    def forward(self, x: Tensor, pos: Tensor, encoding: Encoding) -> Tensor:
        q, k, v = self.project(x)
        q, k = encoding.rotate(x, q, k, pos)
        with torch.autocast(x.device.type, enabled=False):
            out = self.attend(encoding, x, q, k, v, pos)
        return self.project_output(out)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [B, H, T, d] of x [B, T, D], before `encoding.rotate`."""
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = normalize_head(q, self.q_norm), normalize_head(k, self.k_norm)
        return q, k, v

    def project_output(self, out: Tensor) -> Tensor:
        """Return the sub-layer's output [B, T, D] for the output [B, H, T, d] of all heads."""
        return self.out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """out(dropout(activation(up(x)))), or SwiGLU: out(dropout(silu(gate(x)) * up(x))).

    SwiGLU is from Shazeer 2020 (arXiv:2002.05202).
    """

    def __init__(
        self, width: int, hidden: int, activation: str, dropout: float, *, bias: bool
    ) -> None:
        super().__init__()
        self.up = Linear(width, hidden, bias=bias)
        self.gate = Linear(width, hidden, bias=bias) if activation == "swiglu" else None
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.out = Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            hidden = self.activation(self.up(x))
        else:
            hidden = self.activation(self.gate(x)) * self.up(x)
        return self.out(self.dropout(hidden))


def norm_layer(name: str, width: int, *, bias: bool) -> nn.Module:
    """Return a layer norm or an RMS norm over `width` channels."""
    if name == "layer_norm":
        return nn.LayerNorm(width, bias=bias)
    return nn.RMSNorm(width)


def normalize_head(x: Tensor, weight: Tensor) -> Tensor:
    """Apply an RMS norm with weight [d] to the channels of queries or keys [B, H, T, d]."""
    return rms_norm(x, weight.shape, weight.to(x.dtype), eps=1e-6)


def check_dropout(name: str, probability: float) -> None:
    """Raise ValueError unless `probability` is in [0, 1)."""
    if not 0 <= probability < 1:
        raise ValueError(f"{name}={probability} must be at least 0 and below 1")
