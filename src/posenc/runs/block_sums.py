"""`loss_by_block.npz`: the summed losses of each evaluation row in blocks of consecutive tokens.

The text of a split is itself a sample. Resampling its blocks (a block bootstrap) shows how much a
loss depends on the choice of text.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc.runs.evaluation_rows import at_tokens_suffix, measurement_key, sums_and_counts

BLOCK_TOKENS = 4096


class BlockSums(NamedTuple):
    """The summed losses in nats and the numbers of scored targets in each block of a split's text.

    Both arrays have one entry for each block of BLOCK_TOKENS consecutive tokens. A target belongs
    to the block that contains its position in the text, whatever window it was scored in.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]


def block_arrays(row: dict[str, Any], blocks: BlockSums) -> dict[str, np.ndarray]:
    """Return the arrays that store the blocks of an evaluation row."""
    name = _array_name(row)
    return {f"{name}.sum": blocks.sums, f"{name}.count": blocks.counts}


def row_blocks(row: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> BlockSums | None:
    """Return the blocks of an evaluation row, or None if none were saved with it."""
    stored = sums_and_counts(row, arrays, _array_name(row))
    return BlockSums(*stored) if stored else None


def _array_name(row: dict[str, Any]) -> str:
    """Return `<data>.<split>.<protocol>.<length>.<stride>.<swap>`, with `-` for null.

    If the row's `at_tokens` is not null, the name ends in `.at_tokens=<n>`.
    """
    *parts, _ = measurement_key(row)
    return ".".join("-" if part is None else str(part) for part in parts) + at_tokens_suffix(row)
