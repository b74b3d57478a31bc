"""PyTorch's fused attention with a mask, and what a backward pass of one's own needs of it."""

import torch
from torch import Tensor

from posenc.attention.block_gradients import Rows, Sums
from posenc.attention.scores import wide


def forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attention [B, H, R, d] and the logarithm of the sum of exponents of each row [B, H, R].

    v is as wide as q and k; `bias` [1|B, H, R, K] in float32 or wider, any view of it. Away from
    the CPU, where no fused kernel takes such a bias, the softmax is explicit.
    """
    if q.device.type == "cpu":
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return fused(q, k, v, attn_mask=bias, scale=scale)
    dtype = wide(q.dtype)
    scores = (q.to(dtype) @ k.to(dtype).mT).mul_(scale).add_(bias)
    lse = scores.logsumexp(-1)
    return (scores.sub_(lse[..., None]).exp_() @ v.to(dtype)).to(q.dtype), lse


def backward(rows: Rows, k: Tensor, v: Tensor, bias: Tensor, scale: float, sums: Sums) -> Tensor:
    """The gradient of the queries on the CPU; those of keys and values are added to the sums."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    given = (rows.grad, rows.q, k, v, rows.out, rows.lse, 0.0, False)
    grad_q, grad_k, grad_v = fused(*given, attn_mask=bias, scale=scale)
    sums.k.add_(grad_k)
    sums.v.add_(grad_v)
    return grad_q
