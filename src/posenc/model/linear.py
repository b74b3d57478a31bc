"""Linear maps, in float32 on a CPU with AVX-512 by oneDNN.

PyTorch gives products in float32 to MKL; on an AMD EPYC oneDNN takes less than half of its time.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ONEDNN = (
    torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
)


class Linear(nn.Linear):
    """nn.Linear by that product."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., D] @ weight.T + bias for weight [E, D] and bias [E]."""
    single = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    here = ONEDNN and single and x.device.type == "cpu" and x.numel()  # it knows no empty products
    if not here or torch.compiler.is_compiling():
        return nn.functional.linear(x, weight, bias)
    return Product.apply(x, weight, bias)


class Product(torch.autograd.Function):
    """x @ weight.T + bias by oneDNN."""

    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            onednn(grad, weight.T) if of_x else None,
            onednn(rows.T, x.flatten(0, -2).T) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product alone, which autograd does not know."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
