"""The adaptive softmax (Grave et al. 2017, 1609.04309), tied to an adaptive embedding."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from posenc.model.adaptive_embedding import AdaptiveEmbedding
from posenc.model.loss import token_losses


class AdaptiveHead(nn.Module):
    """A softmax over the words of the first band and the names of the others, then one in a band.

    Vectors and projections are the embedding's; the first band's projection has no part here, as
    its vectors are as wide as the stream. `dropout` is for the stream and for what is projected
    of it.
    """

    def __init__(self, embedding: AdaptiveEmbedding, dropout: float) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"head_dropout={dropout} is a share; give 0 or more and less than 1")
        self.embedding = embedding
        self.names = nn.Linear(embedding.width, len(embedding.cutoffs), bias=False)
        self.dropout = nn.Dropout(dropout)

    @property
    def weight(self) -> Tensor:
        """What the stream of every token is multiplied with: [first band and names, D]."""
        return torch.cat([self.embedding.vectors(0), self.names.weight])

    def forward(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [B, T, vocabulary] for the stream [B, T, D]."""
        hidden, first = self.dropout(hidden), self.embedding.cutoffs[0]
        head = linear(hidden, self.weight).log_softmax(dim=-1)
        parts = [head[..., :first]]
        for band in range(1, len(self.embedding.bands)):
            logits = linear(self._inner(hidden, band), self.embedding.vectors(band))
            parts.append(head[..., first + band - 1, None] + logits.log_softmax(dim=-1))
        return torch.cat(parts, dim=-1)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood [B, T] of the targets in nats, in float32 or wider."""
        flat, wanted = self.dropout(hidden).flatten(0, 1), targets.flatten()
        band, first = self.embedding.band_of(wanted), self.embedding.cutoffs[0]
        named = torch.where(band == 0, wanted, first + band - 1)
        losses = token_losses(flat[None], self.weight, named[None])[0]
        for i, start in enumerate(self.embedding.cutoffs, start=1):
            (inside,) = (band == i).nonzero(as_tuple=True)
            inner, words = self._inner(flat[inside], i), wanted[inside] - start
            within = token_losses(inner[None], self.embedding.vectors(i), words[None])[0]
            losses = losses.index_add(0, inside, within)
        return losses.view_as(targets)

    def _inner(self, hidden: Tensor, band: int) -> Tensor:
        """The stream as a band's own softmax sees it."""
        return self.dropout(self.embedding.narrowed(hidden, band))
