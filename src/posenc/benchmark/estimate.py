"""Estimates the parameters, memory, FLOPs and time of a run without training."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch._subclasses.fake_tensor import DataDependentOutputException

from posenc.benchmark.expected_data import ExpectedData, expected_data
from posenc.benchmark.process_memory import process_bytes
from posenc.benchmark.throughput import Machine, Throughput
from posenc.benchmark.training_memory import TrainingMemory, training_memory
from posenc.config.identity import key_without_seed
from posenc.config.steps import TrainingSteps, training_steps
from posenc.evaluation.requests import (
    Request,
    measurement_requests,
    request_flops,
    requested_row_keys,
    training_flops,
)
from posenc.jobs.validate import validate
from posenc.model.build import build_meta_model
from posenc.model.transformer import Decoder
from posenc.training.compilation import CompileChoice, choose_compile


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of one run.

    `memory_is_lower_bound` means that `memory` excludes the encoding's own activations.
    `evaluation_flops` is 0 unless `includes_evaluation`; it is only approximate unless
    `data_is_prepared`. FLOP/s are per device, without torch.compile; `compile` is whether the run
    will use it, and `compile_reason` why.
    """

    encoding: str
    train_length: int
    seed: int
    devices: int
    vocab_size: int
    parameters: int
    non_embedding_parameters: int
    memory: TrainingMemory
    memory_is_lower_bound: bool
    training_flops: float
    evaluation_flops: float
    flops_per_second: float
    evaluation_flops_per_second: float
    includes_evaluation: bool
    data_is_prepared: bool
    compile: bool
    compile_reason: str

    @property
    def flops(self) -> float:
        return self.training_flops + self.evaluation_flops

    @property
    def training_seconds(self) -> float:
        return self.training_flops / (self.flops_per_second * self.devices)

    @property
    def evaluation_seconds(self) -> float:
        return self.evaluation_flops / (self.evaluation_flops_per_second * self.devices)

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.evaluation_seconds


@dataclass
class SweepCache:
    """What the runs of a sweep share: the encodings that `validate` has verified, and the data."""

    verified: set[str] = field(default_factory=set)
    data: dict[str, ExpectedData] = field(default_factory=dict)


def estimate_runs(configs: Sequence[dict[str, Any]], machine: Machine) -> list[Estimate]:
    """Estimate the cost of the runs of a sweep; runs that differ only in seed share one.

    `configs` has the configurations as plain values.
    """
    cache, estimates = SweepCache(), dict[str, Estimate]()
    keys = [key_without_seed(values) for values in configs]
    for key, values in zip(keys, configs, strict=True):
        if key not in estimates:
            estimates[key] = estimate(OmegaConf.create(values), machine, cache)
    return [
        replace(estimates[key], seed=values["seed"])
        for key, values in zip(keys, configs, strict=True)
    ]


def estimate(config: DictConfig, machine: Machine, cache: SweepCache | None = None) -> Estimate:
    """Estimate the cost of a run; nothing is trained, downloaded or prepared.

    Evaluation is included only if the size of the data is known. Pass a `cache` to estimate several
    runs. Raises ConfigError if the configuration cannot run.
    """
    cache = cache or SweepCache()
    encoding = validate(config, cache.verified)
    data_key = str([config.data, config.tokenizer, config.cache_dir, config.evaluation.split])
    if data_key not in cache.data:
        cache.data[data_key] = expected_data(config)
    data = cache.data[data_key]
    vocab_size = data.vocab_size
    steps = training_steps(config)
    model = build_meta_model(config, vocab_size, encoding)
    embeddings = {*model.embedding.parameters(), *model.head.parameters()}
    memory, is_lower_bound = _memory(config, model, vocab_size, steps, machine)
    requests: list[Request] = []
    if data.splits is not None:
        requests = measurement_requests(
            config, data.splits, requested_row_keys(config, fingerprint="")
        )
    throughput = machine.throughput(config, vocab_size, mean_length(requests))
    compiled = _compile_choice(config, steps, machine)
    return Estimate(
        encoding=config.choices.encoding,
        train_length=config.train_length,
        seed=config.seed,
        devices=config.devices,
        vocab_size=vocab_size,
        parameters=model.parameter_count(),
        non_embedding_parameters=model.parameter_count() - sum(p.numel() for p in embeddings),
        memory=memory,
        memory_is_lower_bound=is_lower_bound,
        training_flops=training_flops(config, model),
        evaluation_flops=_evaluation_flops(config, model, requests, throughput),
        flops_per_second=throughput.training,
        evaluation_flops_per_second=throughput.evaluation,
        includes_evaluation=data.splits is not None,
        data_is_prepared=data.is_prepared,
        compile=compiled.enabled,
        compile_reason=compiled.reason,
    )


def _compile_choice(config: DictConfig, steps: TrainingSteps, machine: Machine) -> CompileChoice:
    on_gpu = machine.gpu and config.trainer.accelerator != "cpu"
    return choose_compile(
        config.compile,
        torch.device("cuda" if on_gpu else "cpu"),
        config.precision,
        steps.total,
        on_this_machine=machine.is_this_machine,
    )


def mean_length(requests: Sequence[Request]) -> int | None:
    """Return the mean evaluation length of the evaluated tokens, or None without requests.

    The time per token is linear in the length, so all measurements together take as long as one of
    as many tokens in windows of the mean length.
    """
    tokens = sum(request.tokens for request in requests)
    return round(sum(r.tokens * r.length for r in requests) / tokens) if tokens else None


def _evaluation_flops(
    config: DictConfig, model: Decoder, requests: Sequence[Request], throughput: Throughput
) -> float:
    """Return the FLOPs of the measurements, as far as the time budget allows each."""
    seconds = config.evaluation.budget_seconds
    limit = float("inf") if seconds is None else seconds * throughput.evaluation * config.devices
    return float(sum(min(limit, request_flops(model, request)) for request in requests))


def _memory(
    config: DictConfig, model: Decoder, vocab_size: int, steps: TrainingSteps, machine: Machine
) -> tuple[TrainingMemory, bool]:
    """Return the memory, and whether it is only a lower bound.

    If the encoding branches on the values of tensors, its activations cannot be traced without
    running it, so they are excluded.
    """
    process = 0 if machine.gpu else process_bytes()
    try:
        return training_memory(config, model, vocab_size, steps, process), False
    except DataDependentOutputException:
        nope_config = copy.deepcopy(config)
        nope_config.encoding = {"_target_": "posenc.encodings.nope.NoPE"}
        return training_memory(nope_config, model, vocab_size, steps, process), True
