"""The machines for which runs can be planned, and the FLOP/s of their devices."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.utils.benchmark import Timer

from posenc.encodings.base import layer_encodings
from posenc.model.build import build_encoding, build_meta_model, build_model, check_memory
from posenc.model.device import autocast, deterministic_numerics
from posenc.model.flops import BACKWARD_FACTOR, model_flops
from posenc.runs.hardware import cores, gpus

PASS_TOKENS = 2048  # tokens per timed pass, but at least one sequence
MAX_TIMED_LAYERS = 2


class Throughput(NamedTuple):
    """The FLOP/s that one device achieves in training and in evaluation."""

    training: float
    evaluation: float


class Machine(ABC):
    """A machine for which runs are planned (config group `machine`).

    `concurrent_runs` is the number of runs that train at the same time; `memory` is the memory of
    one device in bytes, or None if it is unknown.
    """

    has_gpu: bool
    concurrent_runs: int
    memory: float | None = None

    def uses_gpu(self, config: DictConfig) -> bool:
        """Return whether a run with this configuration is assumed to be trained on a GPU."""
        return self.has_gpu

    @abstractmethod
    def throughput(
        self, config: DictConfig, vocab_size: int, evaluation_length: int | None
    ) -> Throughput:
        """Return the throughput of training, and of evaluation on windows of `evaluation_length`.

        If `evaluation_length` is None, both are the throughput of training.
        """


@dataclass(kw_only=True)
class DataSheetGpu(Machine):
    """A GPU described by its data sheet: peak FLOP/s by precision and memory in bytes.

    `utilization` is the assumed fraction of peak FLOP/s that training and evaluation achieve.
    """

    float32: float
    bf16: float
    utilization: float
    memory: float | None
    concurrent_runs: int = 1
    has_gpu = True

    def __post_init__(self) -> None:
        if not 0 < self.utilization <= 1:
            raise ValueError(f"utilization={self.utilization} must be positive and at most 1")
        if self.concurrent_runs < 1:
            raise ValueError(f"concurrent_runs={self.concurrent_runs} must be at least 1")

    def throughput(
        self, config: DictConfig, vocab_size: int, evaluation_length: int | None
    ) -> Throughput:
        flops_per_second = self.utilization * getattr(self, config.precision)
        return Throughput(flops_per_second, flops_per_second)


class ThisMachine(Machine):
    """This machine: its GPU, or the CPU cores available to one run of a sweep.

    Each run's model is timed in training for at least `seconds` / 2 and, if the throughput of
    evaluation is requested, in evaluation for as long.
    """

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.has_gpu = bool(gpus())
        self.concurrent_runs = len(gpus()) or cores()

    def uses_gpu(self, config: DictConfig) -> bool:
        """Return whether a run with this configuration would be trained on a GPU."""
        return self.has_gpu and config.trainer.accelerator != "cpu"

    def throughput(
        self, config: DictConfig, vocab_size: int, evaluation_length: int | None
    ) -> Throughput:
        """Return the measured FLOP/s of passes through at most MAX_TIMED_LAYERS layers.

        If the layers do not share one encoding, all of them are timed. Raises ConfigError if the
        weights of the timed layers exceed this machine's memory.
        """
        config = copy.deepcopy(config)
        encodings = layer_encodings(build_encoding(config))
        if all(encoding is encodings[0] for encoding in encodings):
            config.model.layers = min(MAX_TIMED_LAYERS, config.model.layers)
        check_memory(build_meta_model(config, vocab_size).parameter_count())
        torch.set_num_threads(max(1, cores() // (self.concurrent_runs * config.devices)))
        model = build_model(config, vocab_size).to("cuda" if self.uses_gpu(config) else "cpu")
        tokens = _zipf_tokens(vocab_size, config.train_length).to(model.device)

        def forward() -> Tensor:
            with autocast(config.precision, model.device):
                return model.losses(tokens, tokens).mean()

        seconds = _seconds_per_call(lambda: forward().backward(), self.seconds / 2)
        flops = (1 + BACKWARD_FACTOR) * model_flops(model, config.train_length) * tokens.numel()
        training = flops / seconds
        if evaluation_length is None:
            return Throughput(training, training)
        tokens = _zipf_tokens(vocab_size, evaluation_length).to(model.device)
        model.eval()
        model.encoding.set_training_progress(1.0)  # DroPE supports longer sequences after training
        with torch.no_grad():
            seconds = _seconds_per_call(forward, self.seconds / 2)
        evaluation = model_flops(model, evaluation_length) * tokens.numel() / seconds
        return Throughput(training, evaluation)


def _seconds_per_call(call: Callable[[], object], min_seconds: float) -> float:
    """Return the mean time of a call, measured over at least `min_seconds`."""
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    with deterministic_numerics():
        return timer.blocked_autorange(min_run_time=min_seconds).mean


def _zipf_tokens(vocab_size: int, length: int) -> Tensor:
    """Return windows of random token ids in which higher ids are rarer, as in a word vocabulary."""
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(max(1, PASS_TOKENS // length), length, generator=generator)
    return (vocab_size**uniform).long().clamp(max=vocab_size) - 1
