"""Fixtures that run a kernel and compare it in float32 with the reference in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posenc.attention.choice import kernel_function
from posenc.encodings.base import Encoding, Geometry

GEOMETRY = Geometry(width=24, heads=3, layers=1, train_length=16)
Make = Callable[[Geometry], Encoding]


def _layer_results(name: str, encoding: Encoding, pos: Tensor, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(pos))
    x = torch.randn(1, len(pos), 24, generator=generator).to(dtype)
    q, k, v, weights = torch.randn(4, 1, 3, len(pos), 8, generator=generator).to(dtype).unbind(0)
    q, k, v = (tensor.requires_grad_() for tensor in (q, k, v))
    out = kernel_function(name)(encoding.to(dtype), x, q, k, v, pos)
    leaves = [q, k, v, *encoding.parameters()]
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


@pytest.fixture(scope="session")
def layer_results() -> Callable[[str, Encoding, Tensor, torch.dtype], list[Tensor]]:
    """Return a function that runs a kernel on random inputs.

    It returns the output, then the gradients of q, k, v and the parameters.
    """
    return _layer_results


@pytest.fixture(scope="session")
def assert_precise() -> Callable[[str, Make, Tensor], None]:
    """Return a function that compares a kernel in float32 with the reference in float64.

    Tolerances are 1e-6 for outputs and 1e-5 for gradients. They are relative to the largest entry;
    for the gradients of parameters, that is the largest gradient of any parameter. Because the
    terms of a gradient may cancel, errors of the gradients of q, k and v are relative to at least
    3e-2, and any gradient may have 20 times the error of the reference in float32
    (ALiBi has 10.4 times that error at positions up to 300,000 on an AVX2 processor).
    """

    def compare(name: str, make: Make, pos: Tensor) -> None:
        torch.manual_seed(0)
        encoding = make(GEOMETRY)
        out, *grads = _layer_results(name, encoding, pos, torch.float32)
        _, *rounded_grads = _layer_results("reference", encoding, pos, torch.float32)
        exact, *exact_grads = _layer_results("reference", encoding, pos, torch.float64)
        assert (out - exact).abs().max() <= 1e-6 * exact.abs().max()
        largest = [grad.abs().max().item() for grad in exact_grads]
        scales = [max(value, 3e-2) for value in largest[:3]]
        scales += [max(largest[3:], default=0.0)] * len(largest[3:])
        for grad, rounded, exact_grad, scale in zip(
            grads, rounded_grads, exact_grads, scales, strict=True
        ):
            rounding_error = (rounded - exact_grad).abs().max()
            limit = max(1e-5 * scale, 20 * rounding_error) + 1e-12
            assert (grad - exact_grad).abs().max() <= limit

    return compare
