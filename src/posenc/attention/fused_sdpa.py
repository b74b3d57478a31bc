"""Attention for a block of query rows with an explicit bias, and its gradients.

This is the only file that calls PyTorch's private fused attention, which also returns the logsumexp
of the scores. Callers use the logsumexp to combine blocks and to compute gradients block by block.
The operators were tested with torch 2.9.1, 2.10.0, 2.13.0, 2.14.1 and 2.15.0. If PyTorch lacks
them, public functions compute the same result, using more time and memory.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.attention.reference import score_dtype

CPU_ATTENTION = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""Fused attention that also returns the logsumexp; None if PyTorch lacks it."""
CPU_ATTENTION_BACKWARD = getattr(
    torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None
)
"""The gradients of `CPU_ATTENTION`; None if PyTorch lacks it."""
HEAD_DIM_MULTIPLE = 8
"""Fused kernels are fastest at head dimensions that are multiples of this."""
LOG2_E = math.log2(math.e)


class QueryBlock(NamedTuple):
    """Query rows, their outputs, the gradients of the outputs, and the logsumexp of the scores.

    The shapes are [B, H, R, d'] for `q`, [B, H, R, d] for `out` and `grad_out`, and [B, H, R] for
    `lse`.
    """

    q: Tensor
    out: Tensor
    grad_out: Tensor
    lse: Tensor


def supports_is_causal(device: torch.device) -> bool:
    """Return whether `forward` and `backward` support `is_causal` on a device."""
    return device.type == "cpu" and None not in (CPU_ATTENTION, CPU_ATTENTION_BACKWARD)


def forward(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, is_causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the attention output [B, H, R, d] and the logsumexp [B, H, R] of the scores.

    v must have the head dimension of q and k. `bias` [1|B, 1|H, R, K] is in float32 or wider, may
    be any view, and is -inf where a key is masked. With `is_causal`, keys after row i are not read
    for row i; this requires `supports_is_causal`. The softmax is explicit on a GPU, because fused
    kernels need an aligned bias in the dtype of q, and on a CPU if PyTorch lacks the private
    operator.
    """
    if q.device.type == "cpu" and CPU_ATTENTION is not None:  # adds attn_mask to the scores
        return CPU_ATTENTION(q, k, v, is_causal=is_causal, attn_mask=bias, scale=scale)
    dtype = score_dtype(q.dtype)
    scores = (q.to(dtype) @ k.to(dtype).mT).mul_(scale).add_(bias)
    lse = scores.logsumexp(-1)
    return (scores.sub_(lse[..., None]).exp_() @ v.to(dtype)).to(q.dtype), lse


def merge_outputs(out: Tensor, lse: Tensor, part_out: Tensor, part_lse: Tensor) -> None:
    """Merge attention over other keys (`part_out`, `part_lse`) into `out` and `lse`, in place.

    `out` is in the dtype of `lse`. `part_out` may be overwritten.
    """
    total = torch.logaddexp(lse, part_lse)
    out.mul_((lse - total).exp_()[..., None])
    out.add_(part_out.to(out.dtype).mul_((part_lse - total).exp_()[..., None]))
    lse.copy_(total)


def add_sink(out: Tensor, lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Return `out` and `lse` of `forward` with a logit [H] per head in the softmax's denominator.

    For a QueryBlock with these results, `backward` and `backward_with_bias` return the gradients of
    attention with a sink.
    """
    with_sink = torch.logaddexp(lse, sink.to(lse.dtype)[:, None])
    return (out * (lse - with_sink).exp()[..., None]).to(out.dtype), with_sink


def sink_gradient(block: QueryBlock, sink: Tensor) -> Tensor:
    """Return the gradient [H] of the sink's logit; the sink is like a key whose value is 0."""
    dtype = block.lse.dtype
    weights = (sink.to(dtype)[:, None] - block.lse).exp()
    delta = (block.grad_out.to(dtype) * block.out.to(dtype)).sum(-1)
    return -(weights * delta).sum(dim=(0, 2)).to(sink.dtype)


def backward(
    block: QueryBlock, k: Tensor, v: Tensor, bias: Tensor, scale: float, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values.

    PyTorch's private operator, which is used if there is one, supports only CPU tensors.
    """
    if CPU_ATTENTION_BACKWARD is None:
        grad_k, grad_v = (torch.zeros_like(part, dtype=block.lse.dtype) for part in (k, v))
        grad_q, _ = backward_with_bias(block, k, v, bias, scale, grad_k, grad_v)
        return grad_q, grad_k, grad_v
    inputs = (block.grad_out, block.q, k, v, block.out, block.lse, 0.0, is_causal)
    return CPU_ATTENTION_BACKWARD(*inputs, attn_mask=bias, scale=scale)


def backward_with_bias(
    block: QueryBlock,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    scale: float,
    grad_k: Tensor,
    grad_v: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of q and bias, and add those of k and v to `grad_k` and `grad_v`.

    All gradients are in float32 or wider. The scores are recomputed for one sequence at a time and
    are overwritten by the weights. The weights are computed as powers of 2, because on a CPU,
    PyTorch's `exp` is up to 100 times slower where the result is subnormal or 0.
    """
    dtype = score_dtype(block.q.dtype)
    grad_q = torch.empty_like(block.q, dtype=dtype)
    grad_bias = torch.zeros(bias.shape, dtype=dtype, device=bias.device)
    log2_bias = bias[0].to(dtype) * LOG2_E  # the bias may be shared by all sequences
    for b in range(len(block.q)):
        q, out, grad_out, keys, values = (
            tensor[b].to(dtype) for tensor in (block.q, block.out, block.grad_out, k, v)
        )
        bias_index = min(b, len(bias) - 1)
        if 0 < b < len(bias):
            log2_bias = bias[b].to(dtype) * LOG2_E
        weights = torch.baddbmm(log2_bias, q, keys.mT, alpha=scale * LOG2_E)
        weights.sub_(block.lse[b].to(dtype)[..., None] * LOG2_E).exp2_()
        grad_v[b].add_(torch.bmm(weights.mT, grad_out))
        grad_scores = torch.bmm(grad_out, values.mT)
        grad_scores.sub_((grad_out * out).sum(-1, keepdim=True)).mul_(weights)
        grad_q[b] = torch.bmm(grad_scores, keys).mul_(scale)
        grad_k[b].add_(torch.bmm(grad_scores.mT, q), alpha=scale)
        grad_bias[bias_index] += grad_scores.sum_to_size(bias.shape[1:])
    return grad_q, grad_bias
