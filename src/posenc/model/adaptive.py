"""The Transformer with an adaptive embedding and softmax (Baevski & Auli 2019, 1809.10853)."""

from typing import Any, Literal

from torch import nn

from posenc.attention import Kernel
from posenc.encodings.base import Encoding
from posenc.model.adaptive_embedding import AdaptiveEmbedding
from posenc.model.adaptive_softmax import AdaptiveHead
from posenc.model.block import Block
from posenc.model.decoder import Decoder
from posenc.model.layers import norm_layer


class AdaptiveTransformer(Decoder):
    """A language model over `vocabulary` words, the frequent ones first; widths in channels.

    Embedding and softmax share vectors and projections. `dropout` is for the embedding and for
    what every sub-layer writes to the stream, `activation_dropout` for the hidden channels of the
    feed-forward layers, `head_dropout` for the softmax.
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
        cutoffs: list[int],
        factor: int,
        norm: Literal["layer_norm", "rms_norm"],
        final_norm: bool,
        activation: Literal["relu", "gelu", "silu", "swiglu"],
        embedding_scale: float | None,
        bias: bool,
        dropout: float,
        activation_dropout: float,
        head_dropout: float,
    ) -> None:
        kind: Any = {"norm": norm, "activation": activation, "bias": bias, "dropout": dropout}
        kind["activation_dropout"] = activation_dropout
        embedding = AdaptiveEmbedding(vocabulary, width, cutoffs, factor)
        super().__init__(
            encoding,
            embedding,
            [Block(width, heads, feed_forward, attend, **kind) for _ in range(layers)],
            norm_layer(norm, width, bias=bias) if final_norm else nn.Identity(),
            AdaptiveHead(embedding, head_dropout),
            embedding_scale=width**0.5 if embedding_scale is None else embedding_scale,
            dropout=dropout,
        )
