"""Fast kernels stay precise in long sequences."""

import pytest
import torch
from torch import Tensor

from posenc.attention import reference
from posenc.attention.choice import kernel_function
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cable import Cable
from posenc.encodings.fox import Fox
from posenc.encodings.sandwich import Sandwich

CASES = [
    pytest.param(Alibi, "factored", id="alibi-factored"),
    pytest.param(Alibi, "toeplitz", id="alibi-toeplitz"),
    pytest.param(Sandwich, "toeplitz", id="sandwich-toeplitz"),
    pytest.param(Sandwich, "factored", id="sandwich-factored"),
    pytest.param(Fox, "factored", id="fox-factored"),
    pytest.param(Cable, "factored", id="cable-factored"),
]


def reference_rows(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the reference's last eight rows, in float64."""
    length = q.shape[2]
    x, q, k, v = (tensor.double() for tensor in (x, q, k, v))
    inputs = reference.AttentionInputs(x, q, k, v, torch.arange(length, device=q.device))
    rows, keys = slice(length - 8, length), slice(0, length)
    return reference.attend_rows(encoding.double(), inputs, rows, keys)


@torch.no_grad()
def relative_error(
    make: type[Encoding], name: str, length: int, dtype: torch.dtype, device: str = "cpu"
) -> float:
    """Return the largest error of the kernel's last rows, relative to the largest output."""
    torch.manual_seed(0)
    encoding = make(Geometry(width=24, heads=3, layers=1, train_length=16)).to(device)
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(1, 3, length, 8, generator=generator).to(dtype) for _ in range(3)]
    x = torch.randn(1, length, 24, generator=generator).to(device)
    q, k, v = (tensor.to(device) for tensor in inputs)
    pos = torch.arange(length, device=device)
    out = kernel_function(name)(encoding, x, q, k, v, pos)[:, :, -8:]
    expected = reference_rows(encoding, x, q, k, v)
    return ((out.double() - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.slow
@pytest.mark.parametrize(("make", "name"), [case for case in CASES if case.values[0] != Sandwich])
def test_float32_is_precise_at_32771_positions(make: type[Encoding], name: str) -> None:
    assert relative_error(make, name, 32_771, torch.float32) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toeplitz", "factored"])
def test_a_bounded_bias_is_precise_at_16387_positions(name: str) -> None:
    """Angles in float32 would be off by up to 1e-3 at this length."""
    assert relative_error(Sandwich, name, 16_387, torch.float32) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("make", "name"), CASES)
@pytest.mark.parametrize("length", [8_192, 8_194])
def test_float32_is_precise_at_8192_positions(make: type[Encoding], name: str, length: int) -> None:
    assert relative_error(make, name, length, torch.float32) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("make", "name"), [case for case in CASES if case.values[0] != Sandwich])
def test_bfloat16_is_precise_up_to_its_rounding(make: type[Encoding], name: str) -> None:
    assert relative_error(make, name, 16_384, torch.bfloat16) < 2**-8


@pytest.mark.gpu
@pytest.mark.parametrize("make", [Alibi, Fox])
@pytest.mark.parametrize(
    ("name", "length", "dtype"),
    [("factored", 16_384, torch.bfloat16), ("auto", 4_096, torch.float32)],
)
@torch.no_grad()
def test_kernels_are_precise_on_a_gpu(
    make: type[Encoding], name: str, length: int, dtype: torch.dtype
) -> None:
    tolerance = 1e-6 if dtype == torch.float32 else 2**-8
    assert relative_error(make, name, length, dtype, "cuda") < tolerance
