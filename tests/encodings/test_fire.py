"""The piecewise linear computation of FIRE's MLP equals that with an explicit hidden layer."""

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.fire import Fire, scalar_mlp


def explicit_mlp(x: Tensor, w: Tensor, a: Tensor, v: Tensor, b: Tensor) -> Tensor:
    hidden = (w * x[..., None] + a).relu()
    return (hidden @ v.T + b).movedim(-1, 0)


def random_mlp(units: int, dtype: torch.dtype) -> list[Tensor]:
    """Return w, a, v and b, with both signs, a unit without a slope and one without an offset."""
    generator = torch.Generator().manual_seed(units)
    w, a, b = (torch.randn(size, generator=generator) for size in (units, units, 3))
    w[0], a[-1] = 0, 0
    v = torch.randn(3, units, generator=generator)
    return [p.to(dtype).requires_grad_() for p in (w, a, v, b)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 5e-6)])
@pytest.mark.parametrize("units", [1, 2, 32])
@pytest.mark.parametrize(
    ("low", "high", "shape"),
    [(0, 1, (3, 50_011)), (0, 0, (1, 1)), (-3, 2, (7, 1)), (5, 9, (1, 3))],
)
def test_pieces_equal_the_hidden_layer_in_outputs_and_gradients(
    dtype: torch.dtype,
    tolerance: float,
    units: int,
    low: float,
    high: float,
    shape: tuple[int, int],
) -> None:
    generator = torch.Generator().manual_seed(shape[1])
    x = torch.rand(shape, generator=generator).sort(dim=1).values
    x = (low + (high - low) * x).to(dtype).requires_grad_()
    inputs = [x, *random_mlp(units, dtype)]
    weights = torch.randn(3, *shape, generator=generator).to(dtype)
    expected, actual = explicit_mlp(*(i.double() for i in inputs)), scalar_mlp(*inputs)
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=tolerance * scale)
    grads = [torch.autograd.grad((out * weights).sum(), inputs) for out in (actual, expected)]
    for grad, exact in zip(*grads, strict=True):
        scale = max(1.0, exact.abs().max().item())
        torch.testing.assert_close(grad, exact, rtol=0, atol=tolerance * scale)


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute"
)  # raised by opcheck itself in PyTorch 2.14
def test_the_operator_meets_the_requirements_of_torch_compile() -> None:
    x = torch.linspace(0, 1, 50).view(5, 10).requires_grad_()
    torch.library.opcheck(scalar_mlp, (x, *random_mlp(8, torch.float32)))


@pytest.mark.filterwarnings("ignore")  # the compiler's own warnings
def test_the_bias_compiles_without_graph_breaks() -> None:
    encoding = Fire(Geometry(width=12, heads=3, layers=1, train_length=16))
    pos = torch.arange(37)
    distance, head = (pos[:, None] - pos).float(), torch.arange(3)[:, None, None]

    def bias(distance: Tensor) -> Tensor:
        return encoding.bias(head, distance, pos[:, None])

    weights = torch.linspace(-1, 1, 3 * 37 * 37).view(3, 37, 37)
    results = []
    for function in (bias, torch.compile(bias, fullgraph=True)):
        out = function(distance)
        grads = torch.autograd.grad((out * weights).sum(), list(encoding.parameters()))
        results.append([out, *grads])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
