"""Every layer's attention as its model computes it, a block of query rows at a time.

Scores and weights are those of the reference kernel on the layer's own queries and keys, so that
memory is O(rows x T) however long the window. Shapes as in `encodings.base`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

import torch
from torch import Tensor

from posenc.attention import Kernel
from posenc.attention.blocks import row_blocks
from posenc.attention.precision import autocast
from posenc.attention.reference import attention_scores, causal_mask, score_bias
from posenc.encodings.base import Encoding
from posenc.model.block import Block
from posenc.model.transformer import Decoder

BATCH_TOKENS = 16384  # of a forward pass


@dataclass(frozen=True)
class Layer:
    """What enters the attention of layer `index`: x [B, T, D], q and k [B, H, T, d'] after
    `rotate`, v [B, H, T, d], pos [T] or [B, T, axes]."""

    index: int
    encoding: Encoding
    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    pos: Tensor

    def blocks(self) -> Iterator["Rows"]:
        """All query rows, in turn."""
        for rows, keys in row_blocks(self.encoding, self.q):
            yield Rows(self, rows, keys)


@dataclass(frozen=True)
class Rows:
    """The query `rows` of a layer and the run of `keys` that holds all they see."""

    layer: Layer
    rows: slice
    keys: slice

    @cached_property
    def query(self) -> Tensor:
        """How many tokens precede each query [R, 1]."""
        return torch.arange(self.rows.start, self.rows.stop, device=self.layer.q.device)[:, None]

    @cached_property
    def distance(self) -> Tensor:
        """How many tokens each key lies before each query [R, K]; negative ahead of it."""
        return self.query - torch.arange(self.keys.start, self.keys.stop, device=self.query.device)

    @cached_property
    def seen(self) -> Tensor:
        """Which keys each query sees [R, K]."""
        window = self.layer.encoding.window()
        return causal_mask(self.rows, self.keys, window, self.layer.q.device)

    @cached_property
    def scores(self) -> Tensor:
        """Scores [B, H, R, K], -inf where a key is not seen."""
        at = self.layer
        return attention_scores(at.encoding, at.x, at.q, at.k, at.v, at.pos, self.rows, self.keys)

    @cached_property
    def weights(self) -> Tensor:
        """Attention weights [B, H, R, K] in float64."""
        return self.scores.double().softmax(dim=-1)

    @cached_property
    def added(self) -> Tensor | None:
        """What the encoding adds to the scores [B|1, H, R, K]; None for nothing."""
        at = self.layer
        return score_bias(at.encoding, at.x, at.q, at.k, at.pos, self.rows, self.keys)


class Observer(Protocol):
    """Something that sums what it is shown."""

    def see(self, rows: Rows) -> None: ...


@torch.no_grad()
def watch(
    model: Decoder, tokens: Tensor, observers: Sequence[Observer], precision: str = "float32"
) -> None:
    """Show every block of rows of every layer on tokens [n, T] to the observers, each once.

    The model is put into evaluation mode and computes as it is evaluated, in `precision`.
    """
    blocks = [cast(Block, block) for block in model.blocks]
    kernels = [block.attention.attend for block in blocks]
    model.eval()
    try:
        for index, block in enumerate(blocks):
            block.attention.attend = _watched(index, kernels[index], observers)
        for batch in tokens.split(max(1, BATCH_TOKENS // tokens.shape[1])):
            with autocast(precision, model.device):
                model.hidden_states(batch.to(model.device))
    finally:
        for block, attend in zip(blocks, kernels, strict=True):
            block.attention.attend = attend


def _watched(index: int, kernel: Kernel, observers: Sequence[Observer]) -> Kernel:
    """The kernel, after its inputs have been shown."""

    def attend(
        encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor
    ) -> Tensor:
        for rows in Layer(index, encoding, x, q, k, v, pos).blocks():
            for observer in observers:
                observer.see(rows)
        return kernel(encoding, x, q, k, v, pos)

    return attend
