"""The settings of torch with which posenc computes: subnormal numbers, dtype, device, precision."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from posenc.model.device import deterministic_numerics

PROGRAM = """
import torch
from posenc.model.device import deterministic_numerics

subnormal = torch.tensor(2.0**-127)
assert subnormal * 1.0 > 0
torch.set_num_threads(2)
with deterministic_numerics():
    with deterministic_numerics():
        pass
    products = subnormal.expand(2**20).contiguous() * 1.0
    print((products == 0).all().item(), (torch.tensor(2.0**-126) * 1.0).item() == 2.0**-126)
print((subnormal * 1.0 > 0).item())
"""


def test_subnormal_numbers_are_rounded_to_zero_in_all_threads() -> None:
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    assert output == "True True\nTrue\n"


PRODUCT = """
import torch
from posenc.model.device import deterministic_numerics

a = torch.full((256, 256), 1.001)
with deterministic_numerics():
    print(abs((a @ a)[0, 0].item() - 256 * 1.001**2) < 0.01)
"""


def test_an_environment_variable_does_not_lower_the_precision_of_products() -> None:
    environment = {**os.environ, "ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
    output = subprocess.run(
        [sys.executable, "-c", PRODUCT], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert output == "True\n"


BACKEND = """
import torch
from posenc.model.device import deterministic_numerics

torch.backends.mkldnn.matmul.fp32_precision = "bf16"
with deterministic_numerics():
    print(torch.backends.mkldnn.matmul.fp32_precision)
print(torch.backends.mkldnn.matmul.fp32_precision)
"""


def test_the_precision_of_a_single_backend_is_replaced_and_restored() -> None:
    output = subprocess.run(
        [sys.executable, "-c", BACKEND], capture_output=True, text=True, check=True
    ).stdout
    assert output.split() == ["ieee", "bf16"]


@pytest.fixture
def own_settings() -> Iterator[None]:
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("meta")
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("own_settings")
def test_settings_of_the_process_are_replaced_and_restored() -> None:
    with deterministic_numerics():
        tensor = torch.ones(1)
        assert (tensor.dtype, tensor.device.type) == (torch.float32, "cpu")
        assert torch.get_float32_matmul_precision() == "highest"
    tensor = torch.ones(1)
    assert (tensor.dtype, tensor.device.type) == (torch.bfloat16, "meta")
    assert torch.get_float32_matmul_precision() == "medium"
