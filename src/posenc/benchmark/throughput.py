"""Machines to plan for: how many floating-point operations per second a device does."""

import copy
import time

import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention.precision import autocast
from posenc.model.build import build_model
from posenc.model.flops import BACKWARD_FACTOR, model_flops
from posenc.model.transformer import Decoder
from posenc.runs.hardware import cores, gpus

TOKENS = 2048  # of a timed pass; at least one sequence
LAYERS = 2


class DataSheetGpu:
    """A GPU by its data sheet: peak FLOP/s and bytes; `utilisation` is an assumption."""

    gpu = True

    def __init__(
        self,
        *,
        float32: float,
        bf16: float,
        utilisation: float,
        memory: float,
        concurrent_runs: int = 1,
    ) -> None:
        if not 0 < utilisation <= 1:
            raise ValueError(f"utilisation={utilisation} must be above 0 and at most 1")
        if concurrent_runs < 1:
            raise ValueError(f"concurrent_runs={concurrent_runs} must be 1 or more")
        self.peaks = {"float32": float32, "bf16": bf16}
        self.utilisation, self.memory = utilisation, memory
        self.concurrent_runs = concurrent_runs

    def rate(self, config: DictConfig, vocab_size: int) -> float:
        """Return the FLOP/s of training."""
        return self.utilisation * self.peaks[config.precision]


class ThisMachine:
    """This machine: its GPU, or the cores that a run of a sweep gets, timed for `seconds`."""

    memory = None

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.gpu = bool(gpus())
        self.concurrent_runs = len(gpus()) or cores()

    def rate(self, config: DictConfig, vocab_size: int) -> float:
        """Return the FLOP/s of forward and backward passes of the model's first layers."""
        config = copy.deepcopy(config)
        config.model.layers = min(LAYERS, config.model.layers)
        torch.set_num_threads(max(1, cores() // self.concurrent_runs))
        model = build_model(config, vocab_size).to("cuda" if self.gpu else "cpu")
        length = config.train_length
        tokens = _zipf_tokens(vocab_size, max(1, TOKENS // length), length).to(model.device)
        seconds = _seconds_per_pass(model, tokens, config.precision, self.seconds)
        flops = (1 + BACKWARD_FACTOR) * model_flops(model, length) * tokens.numel()
        return flops / seconds


def _seconds_per_pass(model: Decoder, tokens: Tensor, precision: str, min_seconds: float) -> float:
    """Return the mean time of a forward and backward pass over at least `min_seconds`."""

    def run() -> None:
        with autocast(precision, tokens.device):
            loss = model.losses(tokens, tokens).mean()
        loss.backward()
        loss.item()  # waits for a GPU

    run()
    passes, start = 0, time.perf_counter()
    while passes == 0 or time.perf_counter() - start < min_seconds:
        run()
        passes += 1
    return (time.perf_counter() - start) / passes


def _zipf_tokens(vocab_size: int, sequences: int, length: int) -> Tensor:
    """Return tokens that are rarer the higher their number, as in a word vocabulary."""
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(sequences, length, generator=generator)
    return (vocab_size**uniform).long().clamp(max=vocab_size) - 1
