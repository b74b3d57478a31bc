"""Subnormal numbers, which are slow on many CPUs."""

import subprocess
import sys

PROGRAM = """
import torch
from posenc.model.device import flushed_denormals

subnormal = torch.tensor(2.0**-127)
assert subnormal * 1.0 > 0
torch.set_num_threads(2)
with flushed_denormals():
    products = subnormal.expand(2**20).contiguous() * 1.0
    print((products == 0).all().item(), (torch.tensor(2.0**-126) * 1.0).item() == 2.0**-126)
print((subnormal * 1.0 > 0).item())
"""


def test_subnormal_numbers_are_rounded_to_zero_in_all_threads() -> None:
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    assert output == "True True\nTrue\n"
