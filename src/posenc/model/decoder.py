"""What every Transformer here is: an embedding, blocks, a norm and a head."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from posenc.attention.bias_cache import sharing
from posenc.encodings.base import Encoding
from posenc.model.block import Block


class Head(Protocol):
    """The end of a model: from the stream [B, T, D] to the next tokens.

    `weight` [.., D] is what every token's stream is multiplied with.
    """

    @property
    def weight(self) -> Tensor: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits [B, T, vocabulary]."""
        ...

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood [B, T] of the targets in nats, in float32 or wider."""
        ...


class Decoder(nn.Module):
    """A decoder-only language model; `encoding` acts on the stream and in every layer's attention.

    `embedding` turns tokens [B, T] into the stream [B, T, D], which is multiplied by
    `embedding_scale`; `dropout` is for what then enters the first of the `blocks`.
    """

    head: Head

    def __init__(
        self,
        encoding: Encoding,
        embedding: nn.Module,
        blocks: Iterable[Block],
        norm: nn.Module,
        head: Head,
        *,
        embedding_scale: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.encoding = encoding
        self.embedding_scale = embedding_scale
        self.embedding = embedding
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.head = head

    def hidden(
        self, tokens: Tensor, pos: Tensor | None = None, scored: Tensor | None = None
    ) -> Tensor:
        """The stream [B, T, D] after the last norm for tokens [B, T]; `pos` from the data.

        [n, D] where a mask `scored` [B, T] marks n tokens: what follows the last attention is
        computed for these alone.
        """
        if pos is None:
            pos = self.encoding.positions(tokens.shape[1], tokens.device)
        x = self.encoding.embed(self.embedding(tokens) * self.embedding_scale, pos)
        x = self.dropout(x)
        encodings = [self.encoding.at_layer(index) for index in range(len(self.blocks))]
        with sharing(len({id(encoding) for encoding in encodings})):
            for index, block in enumerate(self.blocks):
                last = scored if index == len(self.blocks) - 1 else None
                x = block(x, pos, encodings[index], last)
        return self.norm(x)

    def forward(self, tokens: Tensor, pos: Tensor | None = None) -> Tensor:
        """Logits [B, T, vocabulary] of the token after each."""
        return self.head(self.hidden(tokens, pos))

    def losses(self, tokens: Tensor, targets: Tensor, pos: Tensor | None = None) -> Tensor:
        """Negative log-likelihood [B, T] of the targets in nats, in float32 or wider."""
        return self.head.losses(self.hidden(tokens, pos), targets)

    def losses_at(self, tokens: Tensor, targets: Tensor, scored: Tensor) -> Tensor:
        """Those of the n targets alone that `scored` [B, T] marks, [n]."""
        hidden = self.hidden(tokens, scored=scored)
        return self.head.losses(hidden[None], targets[scored][None])[0]

    def parameter_count(self) -> int:
        """Trained numbers, shared ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device
