"""Estimates the parameters, memory, FLOPs and time of a run without training."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import DictConfig
from torch._subclasses.fake_tensor import DataDependentOutputException

from posenc.benchmark.process_memory import process_bytes
from posenc.benchmark.throughput import Machine
from posenc.benchmark.training_memory import TrainingMemory, training_memory
from posenc.config.errors import ConfigError
from posenc.config.identity import key_without_seed
from posenc.config.steps import TrainingSteps, training_steps
from posenc.data.build_data import data_source
from posenc.data.dataset import Dataset
from posenc.data.prepare import fingerprint
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers import Tokenizer
from posenc.evaluation.requests import measurement_requests, requested_rows, training_fraction
from posenc.jobs.validate import validate
from posenc.model.build import build_meta_model
from posenc.model.flops import BACKWARD_FACTOR, model_flops
from posenc.model.transformer import Decoder


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of one run.

    `memory_is_lower_bound` means that `memory` excludes the encoding's own activations.
    `includes_evaluation` means that `flops` includes evaluation. `flops_per_second` is per device.
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
    flops: float
    flops_per_second: float
    includes_evaluation: bool

    @property
    def seconds(self) -> float:
        return self.flops / (self.flops_per_second * self.devices)


@dataclass
class SweepCache:
    """What the runs of a sweep share: the encodings that `validate` has verified, and the data."""

    verified: set[str] = field(default_factory=set)
    data: dict[str, tuple[int, Dataset | None]] = field(default_factory=dict)


def estimate_runs(configs: Sequence[DictConfig], machine: Machine) -> list[Estimate]:
    """Estimate the cost of the runs of a sweep; runs that differ only in seed share one."""
    cache, estimates = SweepCache(), dict[str, Estimate]()
    keys = [key_without_seed(config) for config in configs]
    for key, config in zip(keys, configs, strict=True):
        if key not in estimates:
            estimates[key] = estimate(config, machine, cache)
    return [
        replace(estimates[key], seed=config.seed) for key, config in zip(keys, configs, strict=True)
    ]


def estimate(config: DictConfig, machine: Machine, cache: SweepCache | None = None) -> Estimate:
    """Estimate the cost of a run; nothing is trained, downloaded or prepared.

    Evaluation is included only if the data has been prepared, because the cost of evaluation
    depends on the size of the data. Pass a `cache` to estimate several runs. Raises ConfigError if
    the configuration cannot run.
    """
    cache = cache or SweepCache()
    encoding = validate(config, cache.verified)
    data_key = str([config[name] for name in ("data", "tokenizer", "cache_dir")])
    if data_key not in cache.data:
        cache.data[data_key] = vocab_size_and_data(config)
    vocab_size, data = cache.data[data_key]
    steps = training_steps(config)
    model = build_meta_model(config, vocab_size, encoding)
    embeddings = {*model.embedding.parameters(), *model.head.parameters()}
    memory, is_lower_bound = _memory(config, model, vocab_size, steps, machine)
    tokens = steps.total * config.batch_tokens
    flops = (1 + BACKWARD_FACTOR) * model_flops(model, config.train_length) * tokens
    fraction = 1.0
    if data is not None:
        requests = measurement_requests(config, data, requested_rows(config, data.fingerprint))
        fraction = training_fraction(config, requests, model.parameter_count())
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
        flops=flops / fraction,
        flops_per_second=machine.flops_per_second(config, vocab_size),
        includes_evaluation=data is not None,
    )


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


def vocab_size_and_data(config: DictConfig) -> tuple[int, Dataset | None]:
    """Return the vocabulary size, and the data if it has been prepared.

    Without prepared data, the size is that of the tokenizer, or the published size for the corpus.
    Raises ConfigError if it is unknown.
    """
    source = data_source(config)
    if isinstance(source, Dataset):
        return source.vocab_size, source
    corpus, tokenizer = source
    folder = Path(config.cache_dir) / fingerprint(corpus, tokenizer)
    if folder.is_dir():
        data = TokenizedData(folder)
        return data.vocab_size, data
    if isinstance(tokenizer, Tokenizer):
        return tokenizer.vocab_size, None
    expected = tokenizer.expected_vocab_size(corpus)
    if expected is None:
        raise ConfigError(
            f"the vocabulary size of tokenizer={config.choices.tokenizer} on"
            f" data={config.choices.data} is unknown until the data is prepared; start a run on"
            " this data first, or use tokenizer=bpe"
        )
    return expected, None
