"""Triton kernel for `bias_gradient`.

On a CPU, it runs only in Triton's interpreter (TRITON_INTERPRET=1).
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

MIN_DOT_DIM = 16
"""The smallest inner dimension of a matrix product in Triton."""


@triton.jit
def _sum_tiles(
    q, k, v, bias, lse, grad_out, delta, tiles,
    batch, heads, length, window, scale,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr,
    PADDED_HEAD_DIM: tl.constexpr, PADDED_V_DIM: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    tile_distance, head = tl.program_id(0), tl.program_id(1)
    offset, column, v_column = (
        tl.arange(0, TILE),
        tl.arange(0, PADDED_HEAD_DIM),
        tl.arange(0, PADDED_V_DIM),
    )
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for sequence in range(batch):
        first = (sequence * heads + head) * length  # the first row of this sequence and head
        for query_tile in range(tile_distance, tl.cdiv(length, TILE)):
            queries = query_tile * TILE + offset
            keys = (query_tile - tile_distance) * TILE + offset
            distance = queries[:, None] - keys[None, :]
            q_rows, k_rows = first + queries[:, None], first + keys[:, None]
            q_mask = (queries < length)[:, None] & (column < HEAD_DIM)[None, :]
            k_mask = (keys < length)[:, None] & (column < HEAD_DIM)[None, :]
            tile_q = tl.load(q + q_rows * HEAD_DIM + column[None, :], mask=q_mask, other=0.0)
            tile_k = tl.load(k + k_rows * HEAD_DIM + column[None, :], mask=k_mask, other=0.0)
            grad_out_mask = (queries < length)[:, None] & (v_column < V_DIM)[None, :]
            v_mask = (keys < length)[:, None] & (v_column < V_DIM)[None, :]
            tile_grad_out = tl.load(
                grad_out + q_rows * V_DIM + v_column[None, :], mask=grad_out_mask, other=0.0
            )
            tile_v = tl.load(v + k_rows * V_DIM + v_column[None, :], mask=v_mask, other=0.0)
            visible = (distance >= 0) & (distance < window) & (queries < length)[:, None]
            score = tl.dot(tile_q, tl.trans(tile_k), input_precision="ieee") * scale
            score += tl.load(bias + head * length + distance, mask=visible, other=0.0)
            row_lse = tl.load(lse + first + queries, mask=queries < length, other=0.0)
            row_delta = tl.load(delta + first + queries, mask=queries < length, other=0.0)
            weight = tl.where(visible, tl.exp(score - row_lse[:, None]), 0.0)
            grad_weight = tl.dot(tile_grad_out, tl.trans(tile_v), input_precision="ieee")
            total += weight * (grad_weight - row_delta[:, None])
    tile_rows = (head * tl.num_programs(0) + tile_distance) * TILE + offset[:, None]
    tl.store(tiles + tile_rows * TILE + offset[None, :], total)


def launch(inputs: list[Tensor], tiles: Tensor, window: int, scale: float) -> None:
    """Fill `tiles` [H, ceil(T / TILE), TILE, TILE].

    Tile n is the sum of all tiles of score gradients that are n tiles below the diagonal. `inputs`
    are the contiguous q, k, v, bias, lse, grad_out and delta.
    """
    batch, heads, length, head_dim = inputs[0].shape
    v_dim = inputs[2].shape[-1]
    sizes: dict[str, Any] = {
        "HEAD_DIM": head_dim,
        "V_DIM": v_dim,
        "PADDED_HEAD_DIM": max(MIN_DOT_DIM, triton.next_power_of_2(head_dim)),
        "PADDED_V_DIM": max(MIN_DOT_DIM, triton.next_power_of_2(v_dim)),
        "TILE": tiles.shape[-1],
    }
    grid = tiles.shape[1], heads
    kernel: Any = _sum_tiles[grid]
    kernel(*inputs, tiles, batch, heads, length, window, scale, **sizes)
