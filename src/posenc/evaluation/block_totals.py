"""Sums the losses of scored batches over blocks of consecutive tokens of the text."""

import numpy as np
from torch import Tensor

from posenc.data.dataset import TokenArray
from posenc.evaluation.windows import Batch
from posenc.runs.block_sums import BLOCK_TOKENS, BlockSums
from posenc.training.distributed import all_reduce_sum


class BlockTotals:
    """Running sums in float64, one per block of a text; empty for a task (`text` is None)."""

    def __init__(self, text: TokenArray | None) -> None:
        num_blocks = 0 if text is None else -(-len(text.tokens) // BLOCK_TOKENS)
        self._sums = np.zeros(num_blocks, dtype=np.float64)
        self._counts = np.zeros(num_blocks, dtype=np.int64)

    def add(self, batch: Batch, losses: Tensor) -> None:
        """Add the losses [n] of the n scored targets of a batch, in the order of its mask."""
        if not len(self._sums):
            return
        positions = batch.starts[:, None] + np.arange(batch.inputs.shape[1])
        blocks = positions[batch.scored.numpy()] // BLOCK_TOKENS
        num_blocks = len(self._sums)
        self._sums += np.bincount(blocks, weights=losses.cpu().numpy(), minlength=num_blocks)
        self._counts += np.bincount(blocks, minlength=num_blocks)

    def all_reduced(self) -> BlockSums | None:
        """Return the sums over all processes of the run, or None for a task."""
        if not len(self._sums):
            return None
        return BlockSums(all_reduce_sum(self._sums), all_reduce_sum(self._counts))
