"""Observes a model's attention in blocks of query rows, layer by layer.

Functions of the reference kernel recompute scores and weights from a layer's queries and keys, one
block at a time, so that memory is O(rows x T). Shapes are written as in `encodings.base`.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

import torch
from torch import Tensor

from posenc.attention import KernelFunction
from posenc.attention.blocks import row_blocks
from posenc.attention.reference import (
    AttentionInputs,
    attention_scores,
    attention_weights,
    score_bias,
    visible_keys,
)
from posenc.encodings.base import Encoding
from posenc.model.block import Block
from posenc.model.device import autocast
from posenc.model.transformer import Decoder
from posenc.runs.row_types import Row

BATCH_TOKENS = 16384  # tokens per forward pass


def tensor_rows(shared: Row, axes: Sequence[str], columns: Mapping[str, Tensor]) -> list[Row]:
    """Return a row for each index of the columns, which are broadcast to a common shape.

    A row consists of `shared`, the indices along the leading dimensions (named by `axes`), and the
    value of each column.
    """
    tensors = torch.broadcast_tensors(*columns.values())
    return [
        shared
        | dict(zip(axes, index, strict=False))
        | {name: tensor[index].item() for name, tensor in zip(columns, tensors, strict=True)}
        for index in itertools.product(*map(range, tensors[0].shape))
    ]


@dataclass(frozen=True)
class ObservedBlock:
    """A block of query `rows` of a layer, and the range of `keys` that they attend to.

    `inputs` are those of the layer's attention, with q and k after `rotate`.
    """

    layer: int
    encoding: Encoding
    inputs: AttentionInputs
    rows: slice
    keys: slice

    @cached_property
    def query_index(self) -> Tensor:
        """The index of each query in its window [R, 1]."""
        return torch.arange(self.rows.start, self.rows.stop, device=self.inputs.q.device)[:, None]

    @cached_property
    def distance(self) -> Tensor:
        """The distances [R, K] in tokens from queries back to keys; negative for later keys."""
        device = self.inputs.q.device
        return self.query_index - torch.arange(self.keys.start, self.keys.stop, device=device)

    @cached_property
    def mask(self) -> Tensor:
        """A mask [R, K] of the keys that each query attends to."""
        return visible_keys(self.encoding, self.rows, self.keys, self.inputs.q.device)

    @cached_property
    def scores(self) -> Tensor:
        """Scores [B, H, R, K], -inf where masked."""
        return attention_scores(self.encoding, self.inputs, self.rows, self.keys)

    @cached_property
    def weights(self) -> Tensor:
        """Attention weights [B, H, R, K] in float64; with a sink, they sum to less than 1."""
        return attention_weights(self.encoding, self.scores.double())

    @cached_property
    def bias(self) -> Tensor | None:
        """The encoding's bias [B or 1, H, R, K]; None if it has none."""
        x, q, k, _, pos = self.inputs
        return score_bias(self.encoding, x, q, k, pos, self.rows, self.keys)


def observed_blocks(
    layer: int, encoding: Encoding, inputs: AttentionInputs
) -> Iterator[ObservedBlock]:
    """Yield all query rows of a layer, block by block."""
    for rows, keys in row_blocks(encoding, inputs.q):
        yield ObservedBlock(layer, encoding, inputs, rows, keys)


class Observer(Protocol):
    """Accumulates statistics over blocks."""

    def observe(self, block: ObservedBlock) -> None: ...


@torch.no_grad()
def observe_attention(
    model: Decoder, tokens: Tensor, observers: Sequence[Observer], precision: str = "float32"
) -> None:
    """Run the model on tokens [n, T] and pass every block of every layer to each observer.

    The model is put into evaluation mode and computes in `precision`, as in evaluation.
    """
    blocks = [cast(Block, block) for block in model.blocks]
    kernels = [block.attention.attend for block in blocks]
    model.eval()
    try:
        for index, block in enumerate(blocks):
            block.attention.attend = _with_observers(index, kernels[index], observers)
        for batch in tokens.split(max(1, BATCH_TOKENS // tokens.shape[1])):
            with autocast(precision, model.device):
                model.hidden_states(batch.to(model.device))
    finally:
        for block, attend in zip(blocks, kernels, strict=True):
            block.attention.attend = attend


def _with_observers(
    layer: int, kernel: KernelFunction, observers: Sequence[Observer]
) -> KernelFunction:
    """Return a kernel that passes its inputs to the observers before it computes the output."""

    def attend(encoding: Encoding, *inputs: Tensor) -> Tensor:
        for block in observed_blocks(layer, encoding, AttentionInputs(*inputs)):
            for observer in observers:
                observer.observe(block)
        return kernel(encoding, *inputs)

    return attend
