"""The machines for which runs can be planned, and the FLOP/s of their devices."""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.utils.benchmark import Timer

from posenc.attention.precision import autocast
from posenc.model.build import build_meta_model, build_model, check_memory
from posenc.model.flops import BACKWARD_FACTOR, model_flops
from posenc.model.transformer import Decoder
from posenc.runs.hardware import cores, gpus

PASS_TOKENS = 2048  # tokens per timed pass, but at least one sequence
MAX_TIMED_LAYERS = 2


class Machine(ABC):
    """A machine for which runs are planned (config group `machine`).

    `concurrent_runs` is the number of runs that train at the same time; `memory` is the memory of
    one device in bytes, or None if it is unknown.
    """

    gpu: bool
    concurrent_runs: int
    memory: float | None = None

    @abstractmethod
    def flops_per_second(self, config: DictConfig, vocab_size: int) -> float:
        """Return the FLOP/s that training achieves on one device."""


@dataclass(kw_only=True)
class DataSheetGpu(Machine):
    """A GPU described by its data sheet: peak FLOP/s by precision and memory in bytes.

    `utilization` is the assumed fraction of peak FLOP/s that training achieves.
    """

    float32: float
    bf16: float
    utilization: float
    memory: float | None
    concurrent_runs: int = 1
    gpu = True

    def __post_init__(self) -> None:
        if not 0 < self.utilization <= 1:
            raise ValueError(f"utilization={self.utilization} must be positive and at most 1")
        if self.concurrent_runs < 1:
            raise ValueError(f"concurrent_runs={self.concurrent_runs} must be at least 1")

    def flops_per_second(self, config: DictConfig, vocab_size: int) -> float:
        return self.utilization * getattr(self, config.precision)


class ThisMachine(Machine):
    """This machine: its GPU, or the CPU cores available to one run of a sweep.

    Each run's model is timed for `seconds`.
    """

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.gpu = bool(gpus())
        self.concurrent_runs = len(gpus()) or cores()

    def flops_per_second(self, config: DictConfig, vocab_size: int) -> float:
        """Return the measured FLOP/s of training passes through at most MAX_TIMED_LAYERS layers.

        Raises ConfigError if the weights of these layers exceed this machine's memory.
        """
        config = copy.deepcopy(config)
        config.model.layers = min(MAX_TIMED_LAYERS, config.model.layers)
        check_memory(build_meta_model(config, vocab_size).parameter_count())
        torch.set_num_threads(max(1, cores() // self.concurrent_runs))
        model = build_model(config, vocab_size).to("cuda" if self.gpu else "cpu")
        length = config.train_length
        tokens = _zipf_tokens(vocab_size, max(1, PASS_TOKENS // length), length).to(model.device)
        seconds = _seconds_per_pass(model, tokens, config.precision, self.seconds)
        flops = (1 + BACKWARD_FACTOR) * model_flops(model, length) * tokens.numel()
        return flops / seconds


def _seconds_per_pass(model: Decoder, tokens: Tensor, precision: str, min_seconds: float) -> float:
    """Return the mean time of a forward and backward pass over at least `min_seconds`."""

    def run() -> None:
        with autocast(precision, tokens.device):
            loss = model.losses(tokens, tokens).mean()
        loss.backward()

    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=min_seconds).mean


def _zipf_tokens(vocab_size: int, sequences: int, length: int) -> Tensor:
    """Return random token ids in which higher ids are rarer, as in a word vocabulary."""
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(sequences, length, generator=generator)
    return (vocab_size**uniform).long().clamp(max=vocab_size) - 1
