"""Linear layers that use oneDNN for float32 matrix products on CPUs with AVX-512.

PyTorch uses MKL there, which takes more than twice as long on an AMD EPYC.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""PyTorch's private operator for oneDNN's linear layer; None if this version lacks it."""
ONEDNN_AVAILABLE = (
    ONEDNN_LINEAR is not None
    and torch.backends.mkldnn.is_available()
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
)


class Linear(nn.Linear):
    """nn.Linear, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x [..., D] @ weight.T + bias for weight [E, D] and bias [E]."""
    is_float32 = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    # oneDNN does not support empty inputs.
    use_onednn = ONEDNN_AVAILABLE and is_float32 and x.device.type == "cpu" and x.numel()
    if not use_onednn:
        return nn.functional.linear(x, weight, bias)
    return OneDnnLinear.apply(x, weight, bias)


class OneDnnLinear(torch.autograd.Function):
    """x @ weight.T + bias, computed by oneDNN."""

    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return onednn_linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad_out.flatten(0, -2)
        grad_x = onednn_linear(grad_out, weight.T) if needs_x else None
        grad_weight = onednn_linear(rows.T, x.flatten(0, -2).T) if needs_weight else None
        return grad_x, grad_weight, rows.sum(0) if needs_bias else None


@torch.library.custom_op("posenc::onednn_linear", mutates_args=())
def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias, computed by a oneDNN operator that PyTorch cannot differentiate.

    This is a custom operator, so that compiled code also calls it instead of using MKL.
    """
    assert ONEDNN_LINEAR is not None
    return ONEDNN_LINEAR(x, weight, bias, "none", [], "")


@onednn_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])
