"""The oneDNN linear operator has the outputs and gradients of PyTorch's."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.model.linear import Linear, linear


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("shape", [(3, 7), (1, 1), (40,), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_equal_those_in_float64(shape: tuple[int, ...], bias: bool) -> None:
    inputs = [random(*shape, 32), random(48, 32), *([random(48)] if bias else [])]
    inputs_float64 = [tensor.detach().double().requires_grad_() for tensor in inputs]
    out, expected = linear(*inputs), F.linear(*inputs_float64)
    grad_out = torch.randn(out.shape)
    grads = torch.autograd.grad(out, inputs, grad_out)
    expected_grads = torch.autograd.grad(expected, inputs_float64, grad_out.double())
    for result, exact in zip((out, *grads), (expected, *expected_grads), strict=True):
        torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.onednn
def test_a_float32_product_uses_onednn() -> None:
    out = linear(random(2, 8), random(4, 8))
    assert type(out.grad_fn).__name__ == "OneDnnLinearBackward"


def test_other_precisions_use_pytorch() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        x, weight = random(5, 16, dtype=dtype), random(8, 16, dtype=dtype)
        assert torch.equal(linear(x, weight), F.linear(x, weight))
    x, weight = random(5, 16), random(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = linear(x, weight)
        assert out.dtype == torch.bfloat16
        assert torch.equal(out, F.linear(x, weight))


def test_only_required_gradients_are_computed() -> None:
    x, weight = torch.randn(5, 16), random(8, 16)
    linear(x, weight).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.sum(0).expand(8, 16))
    with torch.no_grad():
        assert not linear(x, weight).requires_grad


def test_strided_inputs_and_gradients_give_the_same_results() -> None:
    x, weight = random(32, 6, 5), random(48, 32)
    out = linear(x.permute(1, 2, 0), weight)
    grad_out = torch.randn(48, 5, 6).permute(2, 1, 0)
    grads = torch.autograd.grad(out, (x, weight), grad_out)
    expected = torch.autograd.grad(F.linear(x.permute(1, 2, 0), weight), (x, weight), grad_out)
    for grad, exact in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.onednn
def test_parameters_and_initialization_are_those_of_nn_linear() -> None:
    torch.manual_seed(3)
    ours = Linear(16, 8)
    torch.manual_seed(3)
    theirs = torch.nn.Linear(16, 8)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.weight, theirs.weight)
    x = torch.randn(4, 16)
    torch.testing.assert_close(ours(x), theirs(x))


def test_an_empty_input_gives_a_zero_gradient() -> None:
    """For example, an adaptive-softmax cluster none of whose tokens is in the batch."""
    weight = torch.randn(5, 3, requires_grad=True)
    linear(torch.zeros(0, 3, requires_grad=True), weight).sum().backward()
    assert weight.grad is not None and not weight.grad.any()
