"""A Transformer with an adaptive embedding and softmax (Baevski & Auli 2019, arXiv:1809.10853).

The vocabulary is sorted by decreasing frequency and divided into clusters; clusters of rarer words
have narrower embeddings. The adaptive softmax (Grave et al. 2017, arXiv:1609.04309) is tied to the
embedding.
"""

from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from posenc.attention import KernelFunction
from posenc.encodings.base import Encoding
from posenc.model.block import Block, check_dropout, norm_layer
from posenc.model.loss import token_losses
from posenc.model.transformer import Decoder


class AdaptiveEmbedding(nn.Module):
    """An embedding divided into clusters; cluster i has width / div_value^i channels.

    `cutoffs` are the ids of the first tokens of the second and later clusters. Each cluster has a
    projection from its own width to `width`.
    """

    def __init__(self, vocab_size: int, width: int, cutoffs: list[int], div_value: int) -> None:
        super().__init__()
        edges = [0, *cutoffs, vocab_size]
        if not cutoffs or any(start >= stop for start, stop in pairwise(edges)):
            raise ValueError(
                f"cutoffs={cutoffs} must be strictly increasing, between 0 and"
                f" vocab_size={vocab_size} (exclusive), and not empty"
            )
        if div_value < 1 or div_value ** len(cutoffs) > width:
            raise ValueError(
                f"div_value={div_value} must be at least 1, and small enough that the last of"
                f" {len(edges) - 1} clusters has at least one channel (width={width})"
            )
        self.width, self.cutoffs = width, cutoffs
        cluster_widths = [width // div_value**i for i in range(len(edges) - 1)]
        cluster_sizes = [stop - start for start, stop in pairwise(edges)]
        self.clusters = nn.ModuleList(map(nn.Embedding, cluster_sizes, cluster_widths))
        self.projections = nn.ModuleList(
            nn.Linear(cluster_width, width, bias=False) for cluster_width in cluster_widths
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embeddings [B, T, D] of tokens [B, T]."""
        cluster = self.cluster_index(tokens)
        x = self.cluster_embedding(0).new_empty(*tokens.shape, self.width)
        for i, start in enumerate([0, *self.cutoffs]):
            in_cluster = cluster == i
            x[in_cluster] = self.projections[i](self.clusters[i](tokens[in_cluster] - start)).to(
                x.dtype
            )
        return x

    def cluster_index(self, tokens: Tensor) -> Tensor:
        """Return the index of each token's cluster."""
        return sum((tokens >= cutoff for cutoff in self.cutoffs), torch.zeros_like(tokens))

    def cluster_embedding(self, cluster: int) -> Tensor:
        """Return the embeddings of a cluster, [tokens in the cluster, width of the cluster]."""
        return self.clusters[cluster].get_parameter("weight")


class AdaptiveHead(nn.Module):
    """An adaptive softmax with the weights and projections of the embedding.

    The first softmax is over the tokens of the first cluster and one entry per remaining cluster;
    each remaining cluster has a softmax over its own tokens. The first cluster needs no projection,
    because its embeddings have the width of the model. `dropout` applies to the hidden states
    before and after the projections.
    """

    def __init__(self, embedding: AdaptiveEmbedding, dropout: float) -> None:
        super().__init__()
        check_dropout("head_dropout", dropout)
        self.embedding = embedding
        self.cluster_weights = nn.Linear(embedding.width, len(embedding.cutoffs), bias=False)
        self.dropout = nn.Dropout(dropout)

    @property
    def weight(self) -> Tensor:
        """The matrix [rows, D] of the first softmax, which applies to every token."""
        return torch.cat([self.embedding.cluster_embedding(0), self.cluster_weights.weight])

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the log-probabilities [B, T, vocab_size] for hidden states [B, T, D]."""
        hidden, first_cutoff = self.dropout(hidden), self.embedding.cutoffs[0]
        head_logprobs = linear(hidden, self.weight).log_softmax(dim=-1)
        logprobs = [head_logprobs[..., :first_cutoff]]
        for cluster in range(1, len(self.embedding.clusters)):
            logits = linear(
                self._project_to_cluster(hidden, cluster), self.embedding.cluster_embedding(cluster)
            )
            cluster_logprob = head_logprobs[..., first_cutoff + cluster - 1, None]
            logprobs.append(cluster_logprob + logits.log_softmax(dim=-1))
        return torch.cat(logprobs, dim=-1)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood [B, T] of the targets in nats, float32 or wider."""
        hidden, tokens = self.dropout(hidden).flatten(0, 1), targets.flatten()
        cluster, first_cutoff = self.embedding.cluster_index(tokens), self.embedding.cutoffs[0]
        first_targets = torch.where(cluster == 0, tokens, first_cutoff + cluster - 1)
        losses = token_losses(hidden, self.weight, first_targets)
        for i, start in enumerate(self.embedding.cutoffs, start=1):
            (in_cluster,) = (cluster == i).nonzero(as_tuple=True)
            projected = self._project_to_cluster(hidden[in_cluster], i)
            cluster_targets = tokens[in_cluster] - start
            weight = self.embedding.cluster_embedding(i)
            cluster_losses = token_losses(projected, weight, cluster_targets)
            losses = losses.index_add(0, in_cluster, cluster_losses)
        return losses.view_as(targets)

    def _project_to_cluster(self, hidden: Tensor, cluster: int) -> Tensor:
        """Project hidden states [..., D] to a cluster's width with its transposed projection."""
        projection = self.embedding.projections[cluster].get_parameter("weight")
        return self.dropout(linear(hidden, projection.T))


class AdaptiveTransformer(Decoder):
    """A decoder with adaptive embedding and head; more frequent tokens must have lower ids.

    `dropout` applies to the embedding and to the output of every sub-layer, `activation_dropout`
    to the hidden units of the feed-forward layers, `head_dropout` as in `AdaptiveHead`.
    """

    def __init__(
        self,
        vocab_size: int,
        encoding: Encoding,
        attend: KernelFunction,
        *,
        width: int,
        layers: int,
        heads: int,
        feed_forward: int,
        cutoffs: list[int],
        div_value: int,
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
        embedding = AdaptiveEmbedding(vocab_size, width, cutoffs, div_value)
        super().__init__(
            encoding,
            embedding,
            [Block(width, heads, feed_forward, attend, **options) for _ in range(layers)],
            norm_layer(norm, width, bias=bias) if final_norm else nn.Identity(),
            AdaptiveHead(embedding, head_dropout),
            embedding_scale=width**0.5 if embedding_scale is None else embedding_scale,
            dropout=dropout,
        )
