"""The decoder-only, pre-norm Transformer."""

import hashlib
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding
from posenc.model.kernels import Kernel
from posenc.model.layers import Attention, FeedForward, GatedFeedForward, norm_layer
from posenc.model.linear import Linear
from posenc.model.loss import token_losses


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(
        self, attention: nn.Module, feed_forward: nn.Module, norms: list[nn.Module], dropout: float
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = norms
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, pos: Tensor, encoding: Encoding) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), pos, encoding))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Transformer(nn.Module):
    """A language model over `vocabulary` tokens; widths in channels.

    `encoding` acts on the stream before the first layer and inside every layer's attention,
    which `attend` computes.
    """

    def __init__(
        self,
        vocabulary: int,
        encoding: Encoding,
        attend: Kernel,
        *,
        width: int,
        layers: int,
        heads: int,
        feed_forward: int,
        norm: Literal["layer_norm", "rms_norm"] = "layer_norm",
        activation: Literal["relu", "gelu", "silu", "swiglu"] = "gelu",
        tied: bool = True,
        embedding_scale: float | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if feed_forward < 1 or not 0 <= dropout < 1:
            raise ValueError(
                f"feed_forward={feed_forward} must be 1 or more and dropout={dropout} from 0 to 1"
            )
        self.encoding = encoding
        self.embedding_scale = width**0.5 if embedding_scale is None else embedding_scale
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(
                Attention(width, heads, attend, bias=bias),
                GatedFeedForward(width, feed_forward, bias=bias)
                if activation == "swiglu"
                else FeedForward(width, feed_forward, activation, bias=bias),
                [norm_layer(norm, width, bias=bias) for _ in range(2)],
                dropout,
            )
            for _ in range(layers)
        )
        self.norm = norm_layer(norm, width, bias=bias)
        self.head = Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def hidden(self, tokens: Tensor, pos: Tensor | None = None) -> Tensor:
        """The stream [B, T, D] after the last norm for tokens [B, T]; `pos` from the data."""
        if pos is None:
            pos = self.encoding.positions(tokens.shape[1], tokens.device)
        x = self.encoding.embed(self.embedding(tokens) * self.embedding_scale, pos)
        x = self.dropout(x)
        for index, block in enumerate(self.blocks):
            x = block(x, pos, self.encoding.at_layer(index))
        return self.norm(x)

    def forward(self, tokens: Tensor, pos: Tensor | None = None) -> Tensor:
        """Logits [B, T, vocabulary] of the token after each."""
        return self.head(self.hidden(tokens, pos))

    def losses(self, tokens: Tensor, targets: Tensor, pos: Tensor | None = None) -> Tensor:
        """Negative log-likelihood [B, T] of the targets in nats, in float32 or wider."""
        return token_losses(self.hidden(tokens, pos), self.head.weight, targets)

    def parameter_count(self) -> int:
        """Trained numbers, shared ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())


def initialise(model: Transformer, seed: int) -> None:
    """Draw every weight of the host from the seed and the parameter's own name.

    Models that differ in their encoding alone so start from the same weights. Matrices are
    N(0, 1/fan_in), those that write to the stream smaller by sqrt(2 layers); the encoding's own
    parameters are left as they are.
    """
    shrink = (2 * len(model.blocks)) ** -0.5
    for name, parameter in model.named_parameters():
        if name.startswith("encoding.") or parameter.ndim < 2:
            continue
        generator = torch.Generator().manual_seed(seed_of(seed, name))
        std = parameter.shape[1] ** -0.5 * (shrink if name.endswith(".out.weight") else 1.0)
        drawn = torch.randn(parameter.shape, generator=generator) * std
        with torch.no_grad():
            parameter.copy_(drawn)


def seed_of(seed: int, name: str) -> int:
    """A seed of its own for everything that is drawn, from the run's seed and a name."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
