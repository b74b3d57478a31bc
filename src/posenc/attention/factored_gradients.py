"""The gradients of the factors of a low-rank bias, summed in float64.

The bias Q_i . (K_j - K_i) is the sum of -Q_i . (K_l - K_{l-1}) over j < l <= i. The gradient of the
increment K_l - K_{l-1} is therefore -G_l, where G_l is the sum of Q_i dS_ij over all pairs with
j < l <= i, and dS is the gradient of the scores. The gradient of K is computed from G at the end.
Summing the gradient of K directly would lose precision: the K of FoX is itself a sum over tokens,
so its backward pass would add up large terms that cancel.

The pairs are split into small triangles on the diagonal and rectangles below them, as in
`factored_blocks`; a tile holds the rows of one triangle.
"""

from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.attention.fused_sdpa import HEAD_DIM_MULTIPLE


def to_tiles(tensor: Tensor, block: slice, size: int) -> Tensor:
    """Return a block of rows [B, H, T, ...] as tiles of `size` rows, [B, H * n, size, ...]."""
    return tensor[:, :, block].unflatten(2, (-1, size)).flatten(1, 2)


def from_tiles(tensor: Tensor, heads: int) -> Tensor:
    """Return tiles [B, H * n, size, ...] as rows [B, H, n * size, ...]."""
    return tensor.unflatten(1, (heads, -1)).flatten(2, 3)


class FactorGradients:
    """Sums the gradients of factors [B, H, T, r] over parts of the scores.

    PyTorch's fused backward pass does not return dS, but it returns sums of dS as gradients of
    extra columns of q and k. An extra column of q does not change the scores if the same column of
    k is 0, and the gradient of these zeros is the sum of dS weighted by the column of q; the same
    holds with q and k exchanged. If `query_factors` is None, they are ones.

    Query factors, such as positions, can be much larger than the biases. A rectangle therefore sums
    Q_i dS_ij as (Q_i - Q_s) dS_ij plus Q_s dS_ij, where s is its first row: fused attention sums
    in low precision, so its rounding errors would otherwise grow with the size of Q_i.
    """

    def __init__(
        self,
        query_factors: Tensor | None,
        key_factors: Tensor,
        q: Tensor,
        k: Tensor,
        scale: float,
    ) -> None:
        self.query_factors, self.key_factors = query_factors, key_factors
        # G; its differences are the gradient of the key factors.
        self.crossing_sums = pad(torch.zeros_like(key_factors), (0, 0, 0, 1))
        self.grad_query_factors = None if query_factors is None else torch.zeros_like(query_factors)
        self.scale, self.width, self.rank = scale, q.shape[-1], key_factors.shape[-1]
        # Each range of extra columns is filled in only one of q and k. In the other it is 0, and
        # the gradient of these zeros is a sum of dS.
        starts = list(accumulate([self.rank, 1, self.rank], initial=self.width))
        self.by_key_columns, self.row_sum_column, self.by_query_columns = map(
            slice, starts, starts[1:]
        )
        self.column_sum_column = slice(starts[-1], starts[-1] + 1)
        last = self.row_sum_column if query_factors is None else self.column_sum_column
        extra = last.stop - self.width + -last.stop % HEAD_DIM_MULTIPLE
        self.wide_q, self.wide_k = pad(q, (0, extra)), pad(k, (0, extra))
        self.wide_k[..., self.row_sum_column] = 1
        ones = self.by_key_columns if query_factors is None else self.column_sum_column
        self.wide_q[..., ones] = 1

    def widen(self, tensor: Tensor) -> Tensor:
        """Return a tensor [..., d'] padded with zeros to the width of the widened q and k."""
        return pad(tensor, (0, self.wide_q.shape[-1] - self.width))

    def add_triangles(self, block: slice, grad_bias: Tensor) -> None:
        """Add the triangles on the diagonal of a block, given their dS [B, H * n, size, size]."""
        size, heads = grad_bias.shape[-1], self.key_factors.shape[1]
        grad = grad_bias.double()
        row_sums, key = grad.sum(-1, keepdim=True), to_tiles(self.key_factors, block, size)
        query = (
            torch.ones_like(key)
            if self.query_factors is None
            else to_tiles(self.query_factors, block, size)
        )
        crossing = (grad.mT @ query - row_sums * query).cumsum(2)
        self.crossing_sums[:, :, block.start + 1 : block.stop + 1] += from_tiles(crossing, heads)
        if self.grad_query_factors is not None:
            self.grad_query_factors[:, :, block] += from_tiles(grad @ key - row_sums * key, heads)

    def widened_inputs(self, rows: slice, keys: slice) -> tuple[Tensor, Tensor]:
        """Return the widened q and k of a rectangle, as views that the next call may overwrite."""
        if self.query_factors is not None:
            relative = self.key_factors[:, :, keys] - self.key_factors[:, :, rows.start, None]
            self.wide_k[:, :, keys, self.by_query_columns] = relative
            relative = self.query_factors[:, :, rows] - self.query_factors[:, :, rows.start, None]
            self.wide_q[:, :, rows, self.by_key_columns] = relative
        return self.wide_q[:, :, rows], self.wide_k[:, :, keys]

    def add_rectangle(self, rows: slice, keys: slice, grad_q: Tensor, grad_k: Tensor) -> None:
        """Add a rectangle, given the gradients of its widened q and k."""
        by_key = grad_k[..., self.by_key_columns].double() / self.scale
        if self.query_factors is not None:
            column_sums = grad_k[..., self.column_sum_column].double() / self.scale
            by_key += column_sums * self.query_factors[:, :, rows.start, None]
        row_sums = grad_q[..., self.row_sum_column].double() / self.scale
        by_row = (
            row_sums if self.query_factors is None else row_sums * self.query_factors[:, :, rows]
        )
        self.crossing_sums[:, :, keys.start + 1 : keys.stop + 1] += by_key.cumsum(2)
        suffix_sums = by_row.flip(2).cumsum(2).flip(2)[:, :, 1:]
        self.crossing_sums[:, :, rows.start + 1 : rows.stop] += suffix_sums
        if self.grad_query_factors is not None:
            relative = self.key_factors[:, :, rows] - self.key_factors[:, :, rows.start, None]
            by_query = grad_q[..., self.by_query_columns].double() / self.scale
            self.grad_query_factors[:, :, rows] += by_query - row_sums * relative
