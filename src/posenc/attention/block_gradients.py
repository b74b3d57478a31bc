"""The backward pass of attention for a block of query rows, with the gradient of its bias."""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.attention.scores import wide


class Rows(NamedTuple):
    """A block of queries and what the forward pass made of it; d is the width of the values.

    q [B, H, R, d'], the output and its gradient [B, H, R, d], and the logarithm of the sum of
    the exponents of its scores [B, H, R].
    """

    q: Tensor
    out: Tensor
    grad: Tensor
    lse: Tensor


class Sums(NamedTuple):
    """Where the gradients of keys and values are added up, in float32 or wider: [B, H, K, ..]."""

    k: Tensor
    v: Tensor


def backward(
    rows: Rows, k: Tensor, v: Tensor, bias: Tensor, scale: float, sums: Sums
) -> tuple[Tensor, Tensor]:
    """The gradients of the queries and of the bias, like them; those of k and v are added up.

    `bias` [1|B, H, R, K] is -inf where a key is not seen. The scores of one sequence at a time
    are formed again, and turned into weights and then into their gradients in place.
    """
    dtype = wide(rows.q.dtype)
    grad_q = torch.empty_like(rows.q, dtype=dtype)
    grad_bias = torch.zeros(bias.shape, dtype=dtype, device=bias.device)
    for b in range(len(rows.q)):
        q, out, grad, keys, values = (
            part[b].to(dtype) for part in (rows.q, rows.out, rows.grad, k, v)
        )
        at = b if len(bias) > 1 else 0
        weights = torch.baddbmm(bias[at].to(dtype), q, keys.mT, alpha=scale)
        weights.sub_(rows.lse[b].to(dtype)[..., None]).exp_()
        sums.v[b].add_(torch.bmm(weights.mT, grad))
        changes = torch.bmm(grad, values.mT)
        changes.sub_((grad * out).sum(-1, keepdim=True)).mul_(weights)
        grad_q[b] = torch.bmm(changes, keys).mul_(scale)
        sums.k[b].add_(torch.bmm(changes.mT, q), alpha=scale)
        grad_bias[at] += changes
    return grad_q, grad_bias
