"""The gradient of a learnable bias for FlexAttention, which a Triton kernel computes.

Without a GPU, Triton's interpreter runs the kernel (see tests/conftest.py).
"""

import pytest
import torch
from torch import Tensor

from posenc.attention.bias_gradient import BiasGradient

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, V_WIDTH, HEADS = 24, 16, 3


def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, window: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the attention output and the log-sum-exp of the scores, with an explicit softmax."""
    positions = torch.arange(q.shape[2], device=q.device)
    distance = positions[:, None] - positions
    scores = scale * q @ k.mT + bias[:, distance.clamp(min=0)]
    scores = scores.masked_fill((distance < 0) | (distance >= window), -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize(
    ("length", "window"), [(1, 1), (5, 5), (64, 64), (65, 65), (131, 131), (131, 40), (200, 130)]
)
def test_the_gradient_equals_that_of_automatic_differentiation(length: int, window: int) -> None:
    generator = torch.Generator().manual_seed(length)
    q, k, v, out_weight = (
        torch.randn(2, HEADS, length, width, generator=generator).to(DEVICE)
        for width in (WIDTH, WIDTH, V_WIDTH, V_WIDTH)
    )
    lse_weight = torch.randn(2, HEADS, length, generator=generator).to(DEVICE)
    bias = torch.randn(HEADS, length, generator=generator).to(DEVICE).requires_grad_()

    def gradients(out: Tensor, lse: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((out * out_weight).sum() + (lse * lse_weight).sum(), [bias])

    (expected,) = gradients(*attention(q, k, v, bias, window, 0.3))
    out, lse = attention(q, k, v, bias.detach(), window, 0.3)
    (result,) = gradients(*BiasGradient.apply(out, lse, bias, q, k, v, window, 0.3))
    assert (result[:, window:] == 0).all()
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=2e-5)


def test_gradients_of_the_output_pass_through() -> None:
    q, k, v = (torch.randn(1, HEADS, 9, 16, device=DEVICE) for _ in range(3))
    bias = torch.zeros(HEADS, 9, device=DEVICE, requires_grad=True)
    out, lse = attention(q, k, v, bias.detach(), 9, 0.25)
    out.requires_grad_()
    lse.requires_grad_()
    results = BiasGradient.apply(out, lse, bias, q, k, v, 9, 0.25)
    grads = torch.autograd.grad(results[0].sum() + 2 * results[1].sum(), [out, lse])
    assert (grads[0] == 1).all() and (grads[1] == 2).all()
