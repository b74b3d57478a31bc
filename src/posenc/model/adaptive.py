"""A Transformer with an adaptive embedding and softmax (Baevski & Auli 2019, 1809.10853).

The vocabulary is sorted by decreasing frequency and cut into bands; bands of rarer words have
narrower vectors. The adaptive softmax (Grave et al. 2017, 1609.04309) is tied to the embedding.
"""

from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from posenc.attention import Kernel
from posenc.encodings.base import Encoding
from posenc.model.block import Block, check_dropout, norm_layer
from posenc.model.loss import token_losses
from posenc.model.transformer import Decoder


class AdaptiveEmbedding(nn.Module):
    """An embedding divided into bands; vectors of band i have width / factor^i channels.

    `cutoffs` are the first tokens of the second and later bands. Each band has a projection from
    its own width to `width`.
    """

    def __init__(self, vocab_size: int, width: int, cutoffs: list[int], factor: int) -> None:
        super().__init__()
        edges = [0, *cutoffs, vocab_size]
        if not cutoffs or any(start >= stop for start, stop in pairwise(edges)):
            raise ValueError(
                f"cutoffs={cutoffs} must be strictly increasing, between 0 and"
                f" vocab_size={vocab_size} (exclusive)"
            )
        if factor < 1 or factor ** len(cutoffs) > width:
            raise ValueError(
                f"factor={factor} must be at least 1, and small enough that the last of"
                f" {len(edges) - 1} bands has at least one channel (width={width})"
            )
        self.width, self.cutoffs = width, cutoffs
        band_widths = [width // factor**i for i in range(len(edges) - 1)]
        band_sizes = [stop - start for start, stop in pairwise(edges)]
        self.bands = nn.ModuleList(map(nn.Embedding, band_sizes, band_widths))
        self.projections = nn.ModuleList(
            nn.Linear(band_width, width, bias=False) for band_width in band_widths
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embeddings [B, T, D] of tokens [B, T]."""
        band = self.band_index(tokens)
        x = self.vectors(0).new_empty(*tokens.shape, self.width)
        for i, start in enumerate([0, *self.cutoffs]):
            in_band = band == i
            x[in_band] = self.projections[i](self.bands[i](tokens[in_band] - start)).to(x.dtype)
        return x

    def band_index(self, tokens: Tensor) -> Tensor:
        """Return the index of each token's band."""
        return sum((tokens >= cutoff for cutoff in self.cutoffs), torch.zeros_like(tokens))

    def vectors(self, band: int) -> Tensor:
        """Return the vectors of a band, [tokens in the band, width of the band]."""
        return self.bands[band].get_parameter("weight")


class AdaptiveHead(nn.Module):
    """An adaptive softmax with the vectors and projections of the embedding.

    The first softmax is over the tokens of the first band and one entry per remaining band; each
    remaining band has a softmax over its own tokens. The first band needs no projection, because
    its vectors have the width of the model. `dropout` applies to the hidden states before and after
    the projections.
    """

    def __init__(self, embedding: AdaptiveEmbedding, dropout: float) -> None:
        super().__init__()
        check_dropout("head_dropout", dropout)
        self.embedding = embedding
        # One vector per remaining band. Renaming `names` would change its initial weights.
        self.names = nn.Linear(embedding.width, len(embedding.cutoffs), bias=False)
        self.dropout = nn.Dropout(dropout)

    @property
    def weight(self) -> Tensor:
        """The matrix [rows, D] of the first softmax, which applies to every token."""
        return torch.cat([self.embedding.vectors(0), self.names.weight])

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the log-probabilities [B, T, vocab_size] for hidden states [B, T, D]."""
        hidden, first_cutoff = self.dropout(hidden), self.embedding.cutoffs[0]
        head = linear(hidden, self.weight).log_softmax(dim=-1)
        bands = [head[..., :first_cutoff]]
        for band in range(1, len(self.embedding.bands)):
            logits = linear(self._project_to_band(hidden, band), self.embedding.vectors(band))
            bands.append(head[..., first_cutoff + band - 1, None] + logits.log_softmax(dim=-1))
        return torch.cat(bands, dim=-1)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood [B, T] of the targets in nats, float32 or wider."""
        hidden, tokens = self.dropout(hidden).flatten(0, 1), targets.flatten()
        band, first_cutoff = self.embedding.band_index(tokens), self.embedding.cutoffs[0]
        first_targets = torch.where(band == 0, tokens, first_cutoff + band - 1)
        losses = token_losses(hidden[None], self.weight, first_targets[None])[0]
        for i, start in enumerate(self.embedding.cutoffs, start=1):
            (in_band,) = (band == i).nonzero(as_tuple=True)
            projected = self._project_to_band(hidden[in_band], i)
            band_targets = tokens[in_band] - start
            vectors = self.embedding.vectors(i)
            band_losses = token_losses(projected[None], vectors, band_targets[None])[0]
            losses = losses.index_add(0, in_band, band_losses)
        return losses.view_as(targets)

    def _project_to_band(self, hidden: Tensor, band: int) -> Tensor:
        """Project hidden states [.., D] to the width of a band with its transposed projection."""
        projection = self.embedding.projections[band].get_parameter("weight")
        return self.dropout(linear(hidden, projection.T))


class AdaptiveTransformer(Decoder):
    """A decoder with adaptive embedding and head; more frequent tokens must have lower ids.

    `dropout` applies to the embedding and to the output of every sub-layer, `activation_dropout`
    to the hidden units of the feed-forward layers, `head_dropout` to the softmax.
    """

    def __init__(
        self,
        vocab_size: int,
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
        options: Any = {
            "norm": norm,
            "activation": activation,
            "bias": bias,
            "dropout": dropout,
            "activation_dropout": activation_dropout,
        }
        embedding = AdaptiveEmbedding(vocab_size, width, cutoffs, factor)
        super().__init__(
            encoding,
            embedding,
            [Block(width, heads, feed_forward, attend, **options) for _ in range(layers)],
            norm_layer(norm, width, bias=bias) if final_norm else nn.Identity(),
            AdaptiveHead(embedding, head_dropout),
            embedding_scale=width**0.5 if embedding_scale is None else embedding_scale,
            dropout=dropout,
        )
