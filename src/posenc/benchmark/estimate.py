"""What one run of an experiment will take."""

import copy
from dataclasses import dataclass
from typing import Protocol

from omegaconf import DictConfig
from torch._subclasses.fake_tensor import DataDependentOutputException

from posenc.benchmark.process_memory import process_bytes
from posenc.benchmark.training_memory import Memory, memory_of
from posenc.benchmark.vocab_size import vocabulary_of
from posenc.config.steps import TrainingSteps, training_steps
from posenc.evaluation.requests import (
    measurement_requests,
    requested_rows,
    training_fraction,
)
from posenc.jobs.validate import validate
from posenc.model.build import skeleton
from posenc.model.flops import BACKWARD, model_flops
from posenc.model.transformer import Decoder

NOPE = {"_target_": "posenc.encodings.nope.NoPE"}


class Machine(Protocol):
    """What a run is to run on."""

    @property
    def gpu(self) -> bool: ...

    @property
    def at_once(self) -> int:
        """Runs at a time."""
        ...

    @property
    def memory(self) -> float | None:
        """Bytes of a device, where they are known."""
        ...

    def rate(self, config: DictConfig, vocabulary: int) -> float:
        """Operations per second of one device."""
        ...


@dataclass(frozen=True)
class Estimate:
    """Parameters, bytes, floating-point operations and seconds of one run."""

    encoding: str
    train_length: int
    seed: int
    devices: int
    vocabulary: int
    parameters: int
    without_embeddings: int
    memory: Memory
    least_memory: bool
    flops: float
    rate: float
    evaluated: bool

    @property
    def seconds(self) -> float:
        return self.flops / (self.rate * self.devices)


def estimate(config: DictConfig, machine: Machine) -> Estimate:
    """Nothing is trained, downloaded or prepared; ConfigError for what could not be run.

    The encoding's own memory is left out, and `least_memory` says so, where it cannot be told.
    Evaluation counts where the data have been prepared, so that their length is known.
    """
    validate(config)
    vocabulary, data = vocabulary_of(config)
    steps = training_steps(config)
    model = skeleton(config, vocabulary)
    ends = {*model.embedding.parameters(), *model.head.parameters()}
    memory, least = _memory(config, model, vocabulary, steps, machine)
    trained = steps.total * config.batch_tokens
    flops = (1 + BACKWARD) * model_flops(model, config.train_length) * trained
    share = 1.0
    if data is not None:
        requests = measurement_requests(config, data, requested_rows(config, data.fingerprint))
        share = training_fraction(config, requests, model.parameter_count())
    return Estimate(
        encoding=config.choices.encoding,
        train_length=config.train_length,
        seed=config.seed,
        devices=config.devices,
        vocabulary=vocabulary,
        parameters=model.parameter_count(),
        without_embeddings=model.parameter_count() - sum(p.numel() for p in ends),
        memory=memory,
        least_memory=least,
        flops=flops / share,
        rate=machine.rate(config, vocabulary),
        evaluated=data is not None,
    )


def _memory(
    config: DictConfig, model: Decoder, vocabulary: int, steps: TrainingSteps, machine: Machine
) -> tuple[Memory, bool]:
    process = 0 if machine.gpu else process_bytes()
    try:
        return memory_of(config, model, vocabulary, steps, process), False
    except DataDependentOutputException:
        plain = copy.deepcopy(config)
        plain.encoding = NOPE
        return memory_of(plain, model, vocabulary, steps, process), True
