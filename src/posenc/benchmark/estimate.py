"""Estimates the parameters, memory, FLOPs and time of a run without training.

Nothing is downloaded or prepared: `expected_data` returns what is known about unprepared data.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch._subclasses.fake_tensor import DataDependentOutputException

from posenc.benchmark.process_memory import process_bytes
from posenc.benchmark.throughput import Machine, ThisMachine, Throughput
from posenc.benchmark.training_memory import TrainingMemory, training_memory
from posenc.config.errors import ConfigError
from posenc.config.identity import key_without_seed
from posenc.config.steps import TrainingSteps, training_steps
from posenc.data.build_data import data_source
from posenc.data.corpus import Corpus
from posenc.data.dataset import Dataset, Examples, TokenArray, no_examples_error
from posenc.data.prepare import fingerprint
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers import Tokenizer, TokenizerTrainer
from posenc.evaluation.requests import (
    EvaluationData,
    Request,
    measurement_requests,
    request_flops,
    requested_row_keys,
    training_flops,
)
from posenc.jobs.validate import validate
from posenc.jobs.verify import verify_model
from posenc.model.build import build_meta_model
from posenc.model.transformer import Decoder
from posenc.report.run_labels import run_labels
from posenc.training.compilation import CompileChoice, choose_compile


@dataclass(frozen=True)
class ExpectedData:
    """The vocabulary size and the data of a run.

    `evaluation_data` is what the evaluation reads, or None if its size is unknown. If the data has
    not been prepared, `evaluation_data` has the expected number of tokens, but no text.
    """

    vocab_size: int
    evaluation_data: EvaluationData | None

    @property
    def is_prepared(self) -> bool:
        return isinstance(self.evaluation_data, Dataset)


@dataclass(frozen=True)
class ExpectedText:
    """A placeholder for the evaluation split of unprepared data: `num_tokens` identical tokens."""

    name: str
    num_tokens: int

    def token_array(self, split: str) -> TokenArray:
        tokens = np.broadcast_to(np.uint8(0), self.num_tokens)  # needs no memory
        return TokenArray(tokens, words=0, bytes=0, documents=1, eos_id=0)

    def examples(self, split: str, length: int) -> Examples:
        raise no_examples_error(self.name)


def expected_data(config: DictConfig) -> ExpectedData:
    """Return the data of a run; nothing is downloaded or prepared.

    Without prepared data, the vocabulary size is that of the tokenizer, or the published size for
    the corpus. Raises ConfigError if it is unknown.
    """
    source = data_source(config)
    if isinstance(source, Dataset):
        return ExpectedData(source.vocab_size, source)
    corpus, tokenizer = source
    folder = Path(config.cache_dir) / fingerprint(corpus, tokenizer)
    if folder.is_dir():
        data = TokenizedData(folder)
        return ExpectedData(data.vocab_size, data)
    vocab_size: int | None
    if isinstance(tokenizer, Tokenizer):
        vocab_size = tokenizer.vocab_size
    else:
        vocab_size = tokenizer.expected_vocab_size(corpus)
    if vocab_size is None:
        raise ConfigError(
            f"the vocabulary size of tokenizer={config.choices.tokenizer} on"
            f" data={config.choices.data} is unknown until the data is prepared; start a run on"
            " this data first, or use tokenizer=bpe"
        )
    return ExpectedData(vocab_size, _expected_text(corpus, tokenizer, config.evaluation.split))


def _expected_text(
    corpus: Corpus, tokenizer: Tokenizer | TokenizerTrainer, split: str
) -> ExpectedText | None:
    if corpus.requires_download or split not in corpus.splits():
        return None
    num_tokens = tokenizer.expected_tokens(corpus.documents(split))
    return None if num_tokens is None else ExpectedText(corpus.name, num_tokens)


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of one run.

    `label` is the encoding and the settings in which the runs of a sweep differ.
    `memory_is_lower_bound` means that `memory` excludes the encoding's own activations.
    `evaluation_flops` is 0 unless `includes_evaluation`; it may be approximate unless
    `data_is_prepared`. FLOP/s are per device, without torch.compile; `compile` is whether the run
    will use it, and `compile_reason` says why.
    """

    label: str
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
    """State shared by the runs of a sweep: encodings that `validate` has verified, and data."""

    verified: set[str] = field(default_factory=set)
    data: dict[str, ExpectedData] = field(default_factory=dict)


def estimate_runs(configs: Sequence[dict[str, Any]], machine: Machine) -> list[Estimate]:
    """Estimate the cost of the runs of a sweep; runs that differ only in seed share an estimate.

    `configs` has the configurations as plain dictionaries.
    """
    cache, estimates = SweepCache(), dict[str, Estimate]()
    keys = [key_without_seed(values) for values in configs]
    for key, values in zip(keys, configs, strict=True):
        if key not in estimates:
            estimates[key] = estimate(OmegaConf.create(values), machine, cache)
    return [
        replace(estimates[key], seed=values["seed"], label=label)
        for key, values, label in zip(keys, configs, run_labels(configs), strict=True)
    ]


def estimate(config: DictConfig, machine: Machine, cache: SweepCache | None = None) -> Estimate:
    """Estimate the cost of a run without training it; nothing is downloaded or prepared.

    Evaluation is included only if the size of the data is known. Pass a `cache` to estimate several
    runs. Raises ConfigError if the configuration is invalid.
    """
    cache = cache or SweepCache()
    device = torch.device("cuda" if machine.uses_gpu(config) else "cpu")
    encoding = validate(config, cache.verified, device)
    data_key = str([config.data, config.tokenizer, config.cache_dir, config.evaluation.split])
    if data_key not in cache.data:
        cache.data[data_key] = expected_data(config)
    data = cache.data[data_key]
    vocab_size = data.vocab_size
    steps = training_steps(config)
    verify_model(config, vocab_size, cache.verified)
    model = build_meta_model(config, vocab_size, encoding)
    embeddings = {*model.embedding.parameters(), *model.head.parameters()}
    memory, is_lower_bound = _memory(config, model, vocab_size, steps, machine)
    requests: list[Request] = []
    if data.evaluation_data is not None:
        requests = measurement_requests(
            config, data.evaluation_data, requested_row_keys(config, fingerprint="")
        )
    throughput = machine.throughput(config, vocab_size, mean_length(requests))
    compiled = _compile_choice(config, steps, machine, device)
    return Estimate(
        label=config.choices.encoding,
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
        includes_evaluation=data.evaluation_data is not None,
        data_is_prepared=data.is_prepared,
        compile=compiled.enabled,
        compile_reason=compiled.reason,
    )


def _compile_choice(
    config: DictConfig, steps: TrainingSteps, machine: Machine, device: torch.device
) -> CompileChoice:
    return choose_compile(
        config.compile,
        device,
        config.precision,
        steps.total,
        on_this_machine=isinstance(machine, ThisMachine),
    )


def mean_length(requests: Sequence[Request]) -> int | None:
    """Return the mean window length over all evaluated tokens, or None if there are none.

    The time per token is linear in the window length, so the total time equals that of evaluating
    all tokens in windows of the mean length.
    """
    tokens = sum(request.tokens for request in requests)
    return round(sum(r.tokens * r.length for r in requests) / tokens) if tokens else None


def _evaluation_flops(
    config: DictConfig, model: Decoder, requests: Sequence[Request], throughput: Throughput
) -> float:
    """Return the FLOPs of all measurements, each capped by the time budget."""
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
    process = 0 if machine.uses_gpu(config) else process_bytes()
    try:
        return training_memory(config, model, vocab_size, steps, process), False
    except DataDependentOutputException:
        nope_config = copy.deepcopy(config)
        nope_config.encoding = {"_target_": "posenc.encodings.nope.NoPE"}
        return training_memory(nope_config, model, vocab_size, steps, process), True
