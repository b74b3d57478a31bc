"""Triton kernel of `bias_gradient`. On a CPU, it runs in the interpreter (TRITON_INTERPRET=1)."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

MIN_WIDTH = 16
"""The smallest inner dimension of a matrix product in Triton."""


@triton.jit
def _sum_tiles(
    q, k, v, bias, lse, grad_out, delta, tiles,
    batch, heads, length, window, scale,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, COLUMNS: tl.constexpr, V_COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    tile_distance, head = tl.program_id(0), tl.program_id(1)
    row, column, v_column = tl.arange(0, TILE), tl.arange(0, COLUMNS), tl.arange(0, V_COLUMNS)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for sequence in range(batch):
        first = (sequence * heads + head) * length  # the first row of this sequence and head
        for query_tile in range(tile_distance, tl.cdiv(length, TILE)):
            queries = query_tile * TILE + row
            keys = (query_tile - tile_distance) * TILE + row
            distance = queries[:, None] - keys[None, :]
            q_rows, k_rows = first + queries[:, None], first + keys[:, None]
            q_mask = (queries < length)[:, None] & (column < WIDTH)[None, :]
            k_mask = (keys < length)[:, None] & (column < WIDTH)[None, :]
            tile_q = tl.load(q + q_rows * WIDTH + column[None, :], mask=q_mask, other=0.0)
            tile_k = tl.load(k + k_rows * WIDTH + column[None, :], mask=k_mask, other=0.0)
            out_mask = (queries < length)[:, None] & (v_column < V_WIDTH)[None, :]
            v_mask = (keys < length)[:, None] & (v_column < V_WIDTH)[None, :]
            tile_out = tl.load(
                grad_out + q_rows * V_WIDTH + v_column[None, :], mask=out_mask, other=0.0
            )
            tile_v = tl.load(v + k_rows * V_WIDTH + v_column[None, :], mask=v_mask, other=0.0)
            visible = (distance >= 0) & (distance < window) & (queries < length)[:, None]
            score = tl.dot(tile_q, tl.trans(tile_k), input_precision="ieee") * scale
            score += tl.load(bias + head * length + distance, mask=visible, other=0.0)
            row_lse = tl.load(lse + first + queries, mask=queries < length, other=0.0)
            row_delta = tl.load(delta + first + queries, mask=queries < length, other=0.0)
            weight = tl.where(visible, tl.exp(score - row_lse[:, None]), 0.0)
            grad_weight = tl.dot(tile_out, tl.trans(tile_v), input_precision="ieee")
            total += weight * (grad_weight - row_delta[:, None])
    tile_rows = (head * tl.num_programs(0) + tile_distance) * TILE + row[:, None]
    tl.store(tiles + tile_rows * TILE + row[None, :], total)


def launch(inputs: list[Tensor], tiles: Tensor, window: int, scale: float) -> None:
    """Write the result of `score_gradient_tiles` to `tiles`.

    `inputs` are the contiguous q, k, v, bias, lse, grad_out and delta.
    """
    batch, heads, length, width = inputs[0].shape
    v_width = inputs[2].shape[-1]
    sizes: dict[str, Any] = {
        "WIDTH": width,
        "V_WIDTH": v_width,
        "COLUMNS": max(MIN_WIDTH, triton.next_power_of_2(width)),
        "V_COLUMNS": max(MIN_WIDTH, triton.next_power_of_2(v_width)),
        "TILE": tiles.shape[-1],
    }
    grid = tiles.shape[1], heads
    kernel: Any = _sum_tiles[grid]
    kernel(*inputs, tiles, batch, heads, length, window, scale, **sizes)
