"""Fast kernels hold their promise at positions that their precision could not count exactly."""

import pytest
import torch
from torch import Tensor

from posenc.attention import kernel, reference
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cable import Cable
from posenc.encodings.fox import Fox
from posenc.encodings.sandwich import Sandwich

LONG = [
    pytest.param(Alibi, "factored", 1e-6, id="alibi-factored"),
    pytest.param(Alibi, "lines", 1e-6, id="alibi-lines"),
    pytest.param(Sandwich, "lines", 1e-6, id="sandwich-lines"),
    pytest.param(Fox, "factored", 1e-6, id="fox-factored"),
    pytest.param(Cable, "factored", 1e-6, id="cable-factored"),
]
WAVES = pytest.param(Sandwich, "factored", 5e-6, id="sandwich-factored")  # 128 rounded columns


def last_rows(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The reference's last eight rows, in float64."""
    length = q.shape[2]
    x, q, k, v = (tensor.double() for tensor in (x, q, k, v))
    rows, pos = slice(length - 8, length), torch.arange(length, device=q.device)
    return reference.attend_rows(encoding.double(), x, q, k, v, pos, rows, slice(0, length))


@torch.no_grad()
def far_off(
    make: type[Encoding], name: str, length: int, dtype: torch.dtype, device: str = "cpu"
) -> float:
    """How far the kernel's last rows are from the reference's in float64, of the largest."""
    torch.manual_seed(0)
    encoding = make(Geometry(width=24, heads=3, layers=1, train_length=16)).to(device)
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(1, 3, length, 8, generator=generator).to(dtype) for _ in range(3)]
    x = torch.randn(1, length, 24, generator=generator).to(device)
    q, k, v = (tensor.to(device) for tensor in drawn)
    pos = torch.arange(length, device=device)
    got = kernel(name)(encoding, x, q, k, v, pos)[:, :, -8:]
    wanted = last_rows(encoding, x, q, k, v)
    return ((got.double() - wanted).abs().max() / wanted.abs().max()).item()


@pytest.mark.slow
@pytest.mark.parametrize(("make", "name", "tolerance"), LONG)
def test_float32_holds_at_65536_positions(
    make: type[Encoding], name: str, tolerance: float
) -> None:
    assert far_off(make, name, 65_536, torch.float32) < tolerance


@pytest.mark.parametrize(("make", "name", "tolerance"), [*LONG, WAVES])
def test_float32_holds_at_8192_positions(make: type[Encoding], name: str, tolerance: float) -> None:
    assert far_off(make, name, 8_192, torch.float32) < tolerance


@pytest.mark.parametrize(("make", "name", "tolerance"), LONG)
def test_bfloat16_holds_at_16384_positions_but_for_its_rounding(
    make: type[Encoding], name: str, tolerance: float
) -> None:
    assert far_off(make, name, 16_384, torch.bfloat16) < 2**-8


@pytest.mark.gpu
@pytest.mark.parametrize(("make", "name"), [(Alibi, "factored"), (Fox, "factored")])
@pytest.mark.parametrize(("length", "dtype"), [(65_536, torch.float32), (16_384, torch.bfloat16)])
@torch.no_grad()
def test_it_holds_on_a_gpu(
    make: type[Encoding], name: str, length: int, dtype: torch.dtype
) -> None:
    """The order in which a GPU sums products is its own."""
    tolerance = 1e-6 if dtype == torch.float32 else 2**-8
    assert far_off(make, name, length, dtype, "cuda") < tolerance
