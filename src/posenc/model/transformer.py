"""The Transformer with one matrix for its embedding and one, or the same, for its output."""

import hashlib
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posenc.attention import Kernel
from posenc.encodings.base import Encoding
from posenc.model.block import Block
from posenc.model.decoder import Decoder
from posenc.model.layers import norm_layer
from posenc.model.linear import Linear
from posenc.model.loss import token_losses


class LinearHead(Linear):
    """A vector for every token of the vocabulary; logits are products with it."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__(width, vocabulary, bias=False)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood [B, T] of the targets in nats."""
        return token_losses(hidden, self.weight, targets)


class Transformer(Decoder):
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
        kind: Any = {"norm": norm, "activation": activation, "bias": bias, "dropout": dropout}
        embedding = nn.Embedding(vocabulary, width)
        blocks = [Block(width, heads, feed_forward, attend, **kind) for _ in range(layers)]
        head = LinearHead(width, vocabulary)
        if tied:
            head.weight = embedding.weight
        super().__init__(
            encoding,
            embedding,
            blocks,
            norm_layer(norm, width, bias=bias),
            head,
            embedding_scale=width**0.5 if embedding_scale is None else embedding_scale,
            dropout=dropout,
        )


def initialise(model: Decoder, seed: int) -> None:
    """Draw every weight of the host from the seed and the parameter's own name.

    Models that differ in their encoding alone so start from the same weights. Biases are 0,
    matrices N(0, 1/fan_in), those that write to the stream smaller by sqrt(2 layers), the
    projections of an adaptive embedding, which are used from both sides,
    N(0, 2/(fan_in + fan_out)); the encoding's own parameters are left as they are.
    """
    shrink = (2 * len(model.blocks)) ** -0.5
    for name, parameter in model.named_parameters():
        if name.startswith("encoding."):
            continue
        if name.endswith(".bias"):
            nn.init.zeros_(parameter)
        if parameter.ndim < 2:
            continue
        generator = torch.Generator().manual_seed(seed_of(seed, name))
        std = parameter.shape[1] ** -0.5 * (shrink if name.endswith(".out.weight") else 1.0)
        if name.startswith("embedding.projections."):
            std = (2 / sum(parameter.shape)) ** 0.5
        drawn = torch.randn(parameter.shape, generator=generator) * std
        with torch.no_grad():
            parameter.copy_(drawn)


def seed_of(seed: int, name: str) -> int:
    """A seed of its own for everything that is drawn, from the run's seed and a name."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
