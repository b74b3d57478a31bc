"""The product that replaces PyTorch's: the same numbers and gradients, or PyTorch's own."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.model import linear as module
from posenc.model.linear import Linear, linear

needs_onednn = pytest.mark.skipif(not module.ONEDNN, reason="oneDNN serves no product here")


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("shape", [(3, 7), (1, 1), (40,), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_products_and_gradients_are_those_of_float64(shape: tuple[int, ...], bias: bool) -> None:
    given = [drawn(*shape, 32), drawn(48, 32), *([drawn(48)] if bias else [])]
    wide = [x.detach().double().requires_grad_() for x in given]
    found, wanted = linear(*given), F.linear(*wide)
    pull = torch.randn(found.shape)
    grads = (
        torch.autograd.grad(found, given, pull),
        torch.autograd.grad(wanted, wide, pull.double()),
    )
    for one, other in zip((found, *grads[0]), (wanted, *grads[1]), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_a_product_in_float32_is_onednns() -> None:
    out = linear(drawn(2, 8), drawn(4, 8))
    assert type(out.grad_fn).__name__ == "ProductBackward"


def test_other_precisions_are_pytorchs_own() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        x, weight = drawn(5, 16, dtype=dtype), drawn(8, 16, dtype=dtype)
        assert torch.equal(linear(x, weight), F.linear(x, weight))
    x, weight = drawn(5, 16), drawn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear(x, weight)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, F.linear(x, weight))


def test_only_what_is_asked_for_has_a_gradient() -> None:
    x, weight = torch.randn(5, 16), drawn(8, 16)
    linear(x, weight).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.sum(0).expand(8, 16))
    with torch.no_grad():
        assert not linear(x, weight).requires_grad


def test_strided_gradients_and_inputs_are_read_as_they_lie() -> None:
    x, weight = drawn(32, 6, 5), drawn(48, 32)
    out = linear(x.permute(1, 2, 0), weight)
    pull = torch.randn(48, 5, 6).permute(2, 1, 0)
    found = torch.autograd.grad(out, (x, weight), pull)
    wanted = torch.autograd.grad(F.linear(x.permute(1, 2, 0), weight), (x, weight), pull)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_a_layer_is_nn_linear_in_name_and_initialisation() -> None:
    torch.manual_seed(3)
    ours = Linear(16, 8)
    torch.manual_seed(3)
    theirs = torch.nn.Linear(16, 8)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.weight, theirs.weight)
    x = torch.randn(4, 16)
    torch.testing.assert_close(ours(x), theirs(x))


def test_no_rows_have_no_part_in_the_gradient() -> None:
    """As of a band of rare words that a batch has none of."""
    weight = torch.randn(5, 3, requires_grad=True)
    linear(torch.zeros(0, 3, requires_grad=True), weight).sum().backward()
    assert weight.grad is not None and not weight.grad.any()
