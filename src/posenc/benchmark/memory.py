"""Measures one variant's peak memory: `python -m posenc.benchmark.memory < REQUEST`.

A process of its own, because a peak never falls. What counts is by how much the peak grows in the
pass: after one over a few tokens, so that weights, gradients and the optimizer's moments, the same
for all encodings, are there before.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import OmegaConf

from posenc.benchmark.passes import Passes
from posenc.benchmark.worker import serve
from posenc.runs.environment import peak_megabytes

FEW = 64


def growth(request: dict[str, Any]) -> Iterator[dict[str, float]]:
    """The one answer: `peak_memory_mb` of the `pass` of a `config`."""
    passes = Passes(OmegaConf.create(request["config"]))
    passes.run(request["pass"], passes.tokens[:1, :FEW])
    if passes.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(passes.device)
    before = peak_megabytes()
    passes.run(request["pass"], passes.tokens)
    yield {"peak_memory_mb": peak_megabytes() - before}


if __name__ == "__main__":
    sys.exit(serve(growth))
