"""posenc's training step beside the same model elsewhere: tokens a second, in one process.

    python scripts/benchmarks/peers.py [--length 1024] [--precision bf16] [--rounds 15]
        [--size small|gpt2_124m] [--device auto|cpu|cuda] [--threads 2] [--only NAME,NAME]

A round takes one training step (forward, backward, AdamW, zero_grad) of every contestant and one
product of two 2048 x 2048 matrices in the step's precision, in random order. Medians are printed;
ratios are formed within a round. A contestant whose loss starts far from log(vocabulary) or does
not fall is refused. Peers that are not installed are left out.
"""

import argparse
import math
import os
import platform
import random
import statistics
import sys
import time
from importlib.metadata import version

import torch
from contestants import CONTESTANTS, Contestant, Size

from posenc.attention.precision import autocast
from posenc.runs.environment import MALLOC_VARIABLES

SIZES = {
    "small": Size(width=256, layers=4, heads=8, feed_forward=1024, vocabulary=4096, tokens=4096),
    "gpt2_124m": Size(
        width=768, layers=12, heads=12, feed_forward=3072, vocabulary=50304, tokens=16384
    ),
}
WARM_UP = 2
PRODUCT = 2048
LOSS_AT_START = 1.5  # nats about log(vocabulary)


class Steps:
    """Training steps of a contestant, always on the same tokens."""

    def __init__(
        self, contestant: Contestant, size: Size, length: int, precision: str, device: torch.device
    ) -> None:
        torch.manual_seed(0)
        self.model, self.loss = contestant.build(size, length)
        self.model.to(device).train()
        self.device, self.precision = device, precision
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.flops = flops(self.model, contestant, size, length)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )
        drawn = torch.randint(0, size.vocabulary, (size.tokens // length, length + 1))
        self.tokens, self.targets = drawn[:, :-1].to(device), drawn[:, 1:].to(device)
        self.losses: list[float] = []

    def seconds(self) -> float:
        started = now(self.device)
        with autocast(self.precision, self.device):
            loss = self.loss(self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        taken = now(self.device) - started
        self.losses.append(loss.item())
        return taken


def flops(model: torch.nn.Module, contestant: Contestant, size: Size, length: int) -> int:
    """Of a step's products: 6 for each of its matrices' numbers and each token, and attention's.

    Embeddings are tied: their matrix counts once, as the output's. Attention multiplies queries,
    keys and values [T, D] over half of all pairs; backward takes twice what forward takes.
    """
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    matrices -= length * size.width if contestant.table else 0
    return 6 * size.tokens * (matrices + size.layers * size.width * length)


class Product:
    """A product of two square matrices in the step's precision."""

    flops = 2 * PRODUCT**3

    def __init__(self, precision: str, device: torch.device) -> None:
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.a, self.b = torch.randn(2, PRODUCT, PRODUCT, device=device).to(dtype)
        self.device = device

    def seconds(self) -> float:
        started = now(self.device)
        _ = self.a @ self.b
        return now(self.device) - started


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def installed(names: list[str], *given: object) -> dict[str, Steps]:
    """The steps of those contestants that can be built; what others lack is printed."""
    found = {}
    for name in names:
        try:
            found[name] = Steps(CONTESTANTS[name], *given)  # type: ignore[arg-type]
        except ModuleNotFoundError as missing:
            package = CONTESTANTS[name].package
            print(f"{name} is left out: no module {missing.name}; pip install {package}\n")
    return found


def measure(steps: dict[str, Steps], product: Product, rounds: int) -> list[dict[str, float]]:
    """Seconds of every contestant's step and of the `product`, round by round."""
    timed: dict[str, Steps | Product] = {**steps, "product": product}
    order, taken = list(timed), []
    for number in range(WARM_UP + rounds):
        random.shuffle(order)
        found = {name: timed[name].seconds() for name in order}
        if number >= WARM_UP:
            taken.append(found)
    return taken


def refuse(steps: dict[str, Steps], vocabulary: int) -> None:
    """SystemExit for a contestant that does not learn what it should."""
    for name, one in steps.items():
        first, last = one.losses[0], one.losses[-1]
        if abs(first - math.log(vocabulary)) > LOSS_AT_START or not last < first:
            raise SystemExit(f"{name} is no contestant: its loss goes from {first} to {last}")


def table(steps: dict[str, Steps], taken: list[dict[str, float]]) -> None:
    print(
        "| model | parameters | GFLOPs a step | loss | ms a step | tokens/s | utilisation", end=""
    )
    print(" | beside | posenc's speed / its own | range |")
    print("| --- " + "| ---: " * 6 + "| --- | ---: | --- |")
    for name, one in steps.items():
        seconds = statistics.median(row[name] for row in taken)
        share = statistics.median(
            one.flops / row[name] / (Product.flops / row["product"]) for row in taken
        )
        twin = CONTESTANTS[name].twin
        print(
            f"| {name} | {one.parameters:,} | {one.flops / 1e9:.0f}"
            f" | {one.losses[0]:.2f} to {one.losses[-1]:.2f} | {seconds * 1e3:.0f}"
            f" | {one.tokens.numel() / seconds:.0f} | {share:.2f}"
            f" | {twin or ''} | {ratio(taken, name, twin) if twin in steps else ' | '} |"
        )


def ratio(taken: list[dict[str, float]], name: str, ours: str) -> str:
    """How many times as fast ours is: the median and the range over rounds."""
    found = [row[name] / row[ours] for row in taken]
    return f"{statistics.median(found):.2f} | {min(found):.2f} to {max(found):.2f}"


def fastest(steps: dict[str, Steps], taken: list[dict[str, float]]) -> None:
    peers = [name for name in steps if CONTESTANTS[name].twin]
    if not peers or "posenc nope" not in steps:
        return
    best = min(peers, key=lambda name: statistics.median(row[name] for row in taken))
    median, between = ratio(taken, best, "posenc nope").split(" | ")
    print(f"\nposenc nope is {median} times as fast as the fastest peer, {best} ({between}).")


def main() -> None:
    if (
        not os.environ.keys() >= MALLOC_VARIABLES.keys()
    ):  # as the jobs of posenc have it, for everyone
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC_VARIABLES})
    arguments = parsed()
    size, device = SIZES[arguments.size], torch.device(arguments.device)
    torch.set_num_threads(arguments.threads)
    random.seed(0)
    steps = installed(arguments.only, size, arguments.length, arguments.precision, device)
    product = Product(arguments.precision, device)
    taken = measure(steps, product, arguments.rounds)
    refuse(steps, size.vocabulary)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    packages = sorted({CONTESTANTS[name].package for name in steps} - {"posenc"} | {"torch"})
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    print(f"{size}, L={arguments.length}, {arguments.precision}, {where},")
    print(f"{arguments.threads} threads, {arguments.rounds} rounds; Python", end=" ")
    print(f"{platform.python_version()}, {versions}\n")
    table(steps, taken)
    seconds = statistics.median(row["product"] for row in taken)
    print(f"\nThe product of matrices: {Product.flops / seconds / 1e9:.0f} GFLOPs/s.")
    fastest(steps, taken)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=1024, help="tokens of a window")
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int, default=2)
    every = ",".join(CONTESTANTS)
    parser.add_argument("--only", default=every, help=f"contestants among {every}")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    return arguments


if __name__ == "__main__":
    main()
