"""Time FlexAttention with several `kernel_options`, to choose those of attention/flex.py.

    python scripts/benchmarks/flex_options.py [--length 4096] [--head-dim 64] [--rounds 10]

Uses ALiBi with bfloat16 inputs. Prints, for each candidate, the median time of a forward and a
backward pass, and its ratio to that of PyTorch's own choice. On a CPU, where FlexAttention has
neither these options nor a backward pass, only PyTorch's own choice runs.
"""

import argparse
import statistics
from functools import partial
from typing import Any

import torch
from torch import Tensor

from posenc.attention import flex
from posenc.benchmark.measurement_process import call_seconds
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Geometry

HEADS, TOKENS = 8, 16384
BLOCKS = [(128, 128), (128, 64), (64, 128), (64, 64)]
CANDIDATES: dict[str, dict[str, Any]] = {"PyTorch's choice": {}} | {
    f"forward {m}x{n}, {warps} warps, {stages} stages": {
        "fwd_BLOCK_M": m,
        "fwd_BLOCK_N": n,
        "fwd_num_warps": warps,
        "fwd_num_stages": stages,
    }
    for m, n in BLOCKS
    for warps, stages in [(4, 3), (8, 3)]
}
CANDIDATES |= {
    f"backward {m}x{n}, {warps} warps, {stages} stages": {
        "bwd_BLOCK_M1": m,
        "bwd_BLOCK_N1": n,
        "bwd_BLOCK_M2": n,
        "bwd_BLOCK_N2": m,
        "bwd_num_warps": warps,
        "bwd_num_stages": stages,
    }
    for m, n in [(64, 128), (64, 64), (32, 128), (32, 64)]
    for warps, stages in [(4, 3), (8, 2)]
}


def attend(inputs: list[Tensor], encoding: Alibi, options: dict[str, Any]) -> None:
    """Run a forward pass and, on a GPU, a backward pass."""
    q, k, v = inputs
    with torch.set_grad_enabled(q.requires_grad):
        out = flex.attend(encoding, q, q, k, v, torch.arange(q.shape[2]), options=options)
    if q.requires_grad:
        out.backward(torch.ones_like(out))


def measure(length: int, head_dim: int, rounds: int, device: torch.device) -> None:
    """Print the median time of every candidate that compiles; compilation is not timed."""
    geometry = Geometry(HEADS * head_dim, HEADS, layers=1, train_length=length)
    shape = max(1, TOKENS // length), HEADS, length, head_dim
    gpu = device.type == "cuda"
    inputs = [
        torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=gpu) for _ in range(3)
    ]
    baseline = None
    for name, options in CANDIDATES.items():
        call = partial(attend, inputs, Alibi(geometry), options)
        try:
            seconds = [call_seconds(call, device) for _ in range(rounds + 1)][1:]
        except RuntimeError as error:  # some block sizes need too much shared memory
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)
            continue
        median = statistics.median(seconds)
        baseline = baseline or median
        print(f"{name}: {median * 1e3:.3f} ms, ratio {median / baseline:.3f}", flush=True)
        if not gpu:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"L={options.length}, {HEADS} heads of width {options.head_dim}, bfloat16, {device.type}")
    measure(options.length, options.head_dim, options.rounds, device)


if __name__ == "__main__":
    main()
