"""The gradient of a learnable Toeplitz bias on a GPU, without atomic additions.

FlexAttention would add the gradient of every score to the entry for its distance with an atomic
addition. Here the gradients of the scores are recomputed in square tiles. Tiles that are equally
far from the diagonal have the same distances, so one Triton program adds them up into a single
tile, which is then summed along its diagonals. The result is bit-reproducible.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.attention.toeplitz import sum_by_entry

TILE = 64
"""Queries and keys per tile."""


class BiasGradient(torch.autograd.Function):
    """Returns `out` and `lse` unchanged, but connected to `bias` in the autograd graph.

    out [B, H, T, d] and lse [B, H, T] are the attention output and the logsumexp of the scores,
    computed from q and k [B, H, T, d'], v [B, H, T, d] and the detached bias [H, T] by distance,
    for distances smaller than `window`. The gradient of the bias is computed from those of `out`
    and `lse`.
    """

    @staticmethod
    def forward(ctx, out, lse, bias, q, k, v, window, scale):  # type: ignore[no-untyped-def]
        ctx.window, ctx.scale = window, scale
        ctx.save_for_backward(out, lse, bias, q, k, v)
        return out.view_as(out), lse.view_as(lse)

    @staticmethod
    def backward(ctx, grad_out, grad_lse):  # type: ignore[no-untyped-def]
        from posenc.attention.bias_gradient_kernel import launch  # requires Triton

        out, lse, bias, q, k, v = ctx.saved_tensors
        # The gradient of a score with weight w is w (grad_out . v - delta).
        delta = (grad_out.float() * out.float()).sum(-1) - grad_lse.float()
        heads, length = q.shape[1:3]
        tiles = q.new_empty(heads, -(-length // TILE), TILE, TILE, dtype=torch.float32)
        inputs = (q, k, v, bias.detach(), lse, grad_out, delta)
        launch([part.contiguous() for part in inputs], tiles, min(ctx.window, length), ctx.scale)
        grad_bias = sum_by_distance(tiles, bias.shape[1]).to(bias.dtype)
        return grad_out, grad_lse, grad_bias, None, None, None, None, None


def sum_by_distance(tiles: Tensor, length: int) -> Tensor:
    """Return the sums [H, T] by distance, query minus key, of tiles [H, n, TILE, TILE]."""
    heads, count, size, _ = tiles.shape
    # Entry e of tile n has the distance (n - 1) * size + e + 1.
    entries = pad(sum_by_entry(tiles.flip(-1).flatten(0, 1)), (0, 1))
    nearer, farther = entries.view(heads, count, 2, size).unbind(2)
    positive = farther + pad(nearer[:, 1:], (0, 0, 0, 1))
    return torch.cat([nearer[:, 0, -1:], positive.flatten(1)], dim=1)[:, :length]
