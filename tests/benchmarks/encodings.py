"""What an encoding costs: a training step, and the memory of a long evaluation, beside none.

    python tests/benchmarks/encodings.py step --length 1024 [--encodings nope,rope] [--rounds 7]
    python tests/benchmarks/encodings.py memory --length 16384 [--encodings nope,alibi]

Width 256, 4 layers, 8 heads, vocabulary 4096, float32, 4096 tokens a step, two threads. Steps are
forward, backward and AdamW, interleaved: every encoding once a round. Ratios are to the first
encoding, round by round; medians are printed. Memory is the peak of a process of its own.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor

from posenc.config.compose import compose
from posenc.model.build import build_model
from posenc.model.decoder import Decoder
from posenc.record.memory import peak_megabytes
from posenc.sweep.process import KEEP_MEMORY

SIZE = ["model.width=256", "model.layers=4", "model.heads=8", "model.feed_forward=1024"]
VOCABULARY, TOKENS = 4096, 4096


class Steps:
    """Training steps of a model on the same tokens."""

    def __init__(self, encoding: str, length: int) -> None:
        self.model = model_of(encoding, length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def seconds(self, tokens: Tensor) -> float:
        started = time.perf_counter()
        self.model.losses(tokens, tokens).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - started


def model_of(encoding: str, length: int) -> Decoder:
    config = compose("train", [*SIZE, f"encoding={encoding}", f"train_length={length}"])
    config.modules = []
    return build_model(config, VOCABULARY)


def step(encodings: list[str], length: int, rounds: int) -> None:
    tokens = torch.randint(0, VOCABULARY, (max(1, TOKENS // length), length))
    steps = {encoding: Steps(encoding, length) for encoding in encodings}
    for one in steps.values():
        one.seconds(tokens)
    taken = [{name: one.seconds(tokens) for name, one in steps.items()} for _ in range(rounds)]
    print(f"{'encoding':16} {'ms a step':>10} {'tokens/s':>10} {'ratio':>7}   L={length}")
    for name in encodings:
        seconds = statistics.median(row[name] for row in taken)
        ratio = statistics.median(row[name] / row[encodings[0]] for row in taken)
        print(f"{name:16} {seconds * 1e3:10.0f} {tokens.numel() / seconds:10.0f} {ratio:7.3f}")


def memory(encodings: list[str], length: int) -> None:
    print(f"{'encoding':16} {'peak MB':>10} {'ratio':>7}   evaluation at {length}")
    peaks = {}
    for name in encodings:
        command = [sys.executable, __file__, "evaluate", "--length", str(length)]
        done = subprocess.run(
            [*command, "--encodings", name], capture_output=True, text=True, check=True
        )
        peaks[name] = float(done.stdout)
        print(f"{name:16} {peaks[name]:10.0f} {peaks[name] / peaks[encodings[0]]:7.3f}")


@torch.no_grad()
def evaluate(encoding: str, length: int) -> None:
    """Print by how much the peak of this process grows in an evaluation, in MB."""
    model = model_of(encoding, 512).eval()
    tokens = torch.randint(0, VOCABULARY, (1, length))
    model.losses(tokens[:, :64], tokens[:, :64])
    before = peak_megabytes()
    model.losses(tokens, tokens)
    print(peak_megabytes() - before)


def main() -> None:
    if not os.environ.keys() >= KEEP_MEMORY.keys():  # as the jobs of posenc have it
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["step", "memory", "evaluate"])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--encodings", default="nope,rope,sinusoidal,alibi,t5,kerple_log,fire")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    encodings = arguments.encodings.split(",")
    if arguments.what == "step":
        step(encodings, arguments.length, arguments.rounds)
    elif arguments.what == "memory":
        memory(encodings, arguments.length)
    else:
        evaluate(encodings[0], arguments.length)


if __name__ == "__main__":
    main()
