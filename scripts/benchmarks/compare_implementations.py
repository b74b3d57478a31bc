"""Compare posenc's training step with that of the same model in other libraries, in one process.

    python scripts/benchmarks/compare_implementations.py [--length 1024] [--rounds 15]
        [--precision float32|bf16]
        [--size tiny|small|gpt2_124m|gpt2_350m] [--tokens TOKENS] [--compile]
        [--device auto|cpu|cuda] [--threads 2] [--only NAME,NAME] [--json FILE]

Each round runs, in random order, one training step (forward, backward, AdamW, zero_grad) of every
implementation and a product of two square matrices in the step's precision. Prints medians over
the rounds; ratios are computed within each round. Exits with an error if an implementation's loss
starts far from log(vocab_size) or does not decrease. Skips libraries that are not installed. With
--compile, all implementations run under torch.compile.
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from implementations import IMPLEMENTATIONS, Implementation, Size

from posenc.benchmark.measurement_process import call_seconds, make_matmul, matmul_flops
from posenc.model.device import autocast
from posenc.runs.environment import MALLOC_VARIABLES

SIZES = {
    "tiny": Size(width=64, layers=2, heads=2, feed_forward=256, vocab_size=50, tokens=128),
    "small": Size(width=256, layers=4, heads=8, feed_forward=1024, vocab_size=4096, tokens=4096),
    "gpt2_124m": Size(
        width=768, layers=12, heads=12, feed_forward=3072, vocab_size=50304, tokens=16384
    ),
    "gpt2_350m": Size(
        width=1024, layers=24, heads=16, feed_forward=4096, vocab_size=50304, tokens=16384
    ),
}
WARM_UP_ROUNDS = 3
MAX_INITIAL_ERROR = 1.5
"""The largest accepted difference between the first loss and log(vocab_size), in nats."""


class Steps:
    """Training steps of an implementation, all on the same batch."""

    def __init__(
        self,
        implementation: Implementation,
        size: Size,
        length: int,
        precision: str,
        device: torch.device,
        *,
        compiled: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.model, loss = implementation.build(size, length)
        self.loss = torch.compile(loss) if compiled else loss
        self.model.to(device).train()
        self.device, self.precision = device, precision
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.flops = step_flops(self.model, implementation, size, length)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )
        windows = torch.randint(0, size.vocab_size, (size.tokens // length, length + 1))
        self.tokens, self.targets = windows[:, :-1].to(device), windows[:, 1:].to(device)
        self.losses: list[float] = []

    def run(self) -> float:
        """Run one step and return its duration in seconds."""
        seconds = call_seconds(self._step, self.device)
        self.losses.append(self.loss_of_step.item())
        return seconds

    def _step(self) -> None:
        with autocast(self.precision, self.device):
            loss = self.loss(self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss_of_step = loss.detach()


def step_flops(
    model: torch.nn.Module, implementation: Implementation, size: Size, length: int
) -> int:
    """Return the FLOPs of a step: 6 per matrix parameter and token, plus those of attention.

    Input and output embeddings share a matrix, which counts once, for the output. Causal attention
    computes half of all pairs of queries and keys. The backward pass takes twice the FLOPs of the
    forward pass.
    """
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    matrices -= length * size.width if implementation.learned_positions else 0
    return 6 * size.tokens * (matrices + size.layers * size.width * length)


def build_installed(
    names: list[str],
    size: Size,
    length: int,
    precision: str,
    device: torch.device,
    *,
    compiled: bool = False,
) -> dict[str, Steps]:
    """Build the implementations whose library is installed, and print which ones are skipped."""
    steps = {}
    for name in names:
        try:
            steps[name] = Steps(
                IMPLEMENTATIONS[name], size, length, precision, device, compiled=compiled
            )
        except ModuleNotFoundError as error:
            package = IMPLEMENTATIONS[name].package
            print(f"skipping {name}: no module {error.name}; pip install {package}\n")
    return steps


def measure(
    steps: dict[str, Steps], precision: str, device: torch.device, rounds: int
) -> list[dict[str, float]]:
    """Return, for every round, the seconds that each implementation and a `product` took."""
    product = make_matmul(precision, device)
    timed: dict[str, Callable[[], float]] = {name: step.run for name, step in steps.items()}
    timed["product"] = lambda: call_seconds(product, device)
    order, results = list(timed), []
    for number in range(WARM_UP_ROUNDS + rounds):
        random.shuffle(order)
        seconds = {name: timed[name]() for name in order}
        if number >= WARM_UP_ROUNDS:
            results.append(seconds)
    return results


def check_learning(steps: dict[str, Steps], vocab_size: int) -> None:
    """Exit with an error if a first loss is implausible or a loss does not decrease."""
    for name, step in steps.items():
        first, last = step.losses[0], step.losses[-1]
        if abs(first - math.log(vocab_size)) > MAX_INITIAL_ERROR or not last < first:
            raise SystemExit(f"{name} does not learn: its loss goes from {first} to {last}")


def print_table(steps: dict[str, Steps], results: list[dict[str, float]]) -> None:
    print(
        "| model | parameters | GFLOPs per step | loss | ms per step | tokens/s | utilization",
        end="",
    )
    print(" | compared with | speedup of posenc | range |")
    print("| --- " + "| ---: " * 6 + "| --- | ---: | --- |")
    for name, step in steps.items():
        seconds = statistics.median(row[name] for row in results)
        utilization = statistics.median(
            step.flops / row[name] / (matmul_flops(step.device) / row["product"]) for row in results
        )
        counterpart = IMPLEMENTATIONS[name].counterpart
        ratio = speed_ratio(results, name, counterpart) if counterpart in steps else " | "
        print(
            f"| {name} | {step.parameters:,} | {step.flops / 1e9:.0f}"
            f" | {step.losses[0]:.2f} to {step.losses[-1]:.2f}"
            f" | {seconds * 1e3:.0f} | {step.tokens.numel() / seconds:.0f}"
            f" | {utilization:.2f} | {counterpart or ''} | {ratio} |"
        )


def speed_ratio(results: list[dict[str, float]], name: str, counterpart: str) -> str:
    """Return the speedup of `counterpart` over `name` as a median and a range over the rounds."""
    ratios = [row[name] / row[counterpart] for row in results]
    return f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f}"


def print_fastest(steps: dict[str, Steps], results: list[dict[str, float]]) -> None:
    """Print the speedup of posenc's model without an encoding over the fastest other library."""
    others = [name for name in steps if IMPLEMENTATIONS[name].counterpart]
    if not others or "posenc nope" not in steps:
        return
    fastest = min(others, key=lambda name: statistics.median(row[name] for row in results))
    median, ratio_range = speed_ratio(results, fastest, "posenc nope").split(" | ")
    print(f"\nposenc nope is {median} times as fast as {fastest}, the fastest of the other")
    print(f"libraries ({ratio_range}).")


def summary(steps: dict[str, Steps], results: list[dict[str, float]], setup: str) -> dict[str, Any]:
    """Return the setup, the FLOPs of a step and of the product, and the seconds of all rounds."""
    (device,) = {step.device for step in steps.values()}
    flops = {name: step.flops for name, step in steps.items()}
    counterparts = {name: IMPLEMENTATIONS[name].counterpart for name in steps}
    return {
        "setup": setup,
        "flops": flops | {"product": matmul_flops(device)},
        "compared_with": {name: c for name, c in counterparts.items() if c in steps},
        "rounds": results,
    }


def main() -> None:
    if not os.environ.keys() >= MALLOC_VARIABLES.keys():
        # posenc's jobs run with these settings, so all implementations get them.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC_VARIABLES})
    options = parse_options()
    size, device = SIZES[options.size], torch.device(options.device)
    torch.set_num_threads(options.threads)
    random.seed(0)
    if options.tokens is not None:
        size = replace(size, tokens=options.tokens)
    arguments = options.only, size, options.length, options.precision, device
    steps = build_installed(*arguments, compiled=options.compile)
    results = measure(steps, options.precision, device, options.rounds)
    check_learning(steps, size.vocab_size)
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    packages = sorted({IMPLEMENTATIONS[name].package for name in steps} - {"posenc"} | {"torch"})
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    compiled = ", compiled" if options.compile else ""
    print(f"{size}, L={options.length}, {options.precision}{compiled}, {hardware},")
    print(f"{options.threads} threads, {options.rounds} rounds; Python", end=" ")
    print(f"{platform.python_version()}, {versions}\n")
    print_table(steps, results)
    seconds = statistics.median(row["product"] for row in results)
    print(f"\nMatrix product: {matmul_flops(device) / seconds / 1e9:.0f} GFLOP/s.")
    print_fastest(steps, results)
    if options.json is not None:
        title = f"{options.size}, L={options.length}, {size.tokens} tokens per step"
        setup = f"{title}, {options.precision}{compiled}, {hardware}"
        options.json.write_text(json.dumps(summary(steps, results, setup), indent=1) + "\n")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=1024, help="tokens per window")
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--tokens", type=int, help="tokens per step (default: the size's)")
    parser.add_argument("--compile", action="store_true", help="run under torch.compile")
    parser.add_argument("--json", type=Path, help="write the times of all rounds to this file")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int, default=2)
    names = ",".join(IMPLEMENTATIONS)
    parser.add_argument("--only", default=names, help=f"comma-separated names (default: {names})")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    return options


if __name__ == "__main__":
    main()
