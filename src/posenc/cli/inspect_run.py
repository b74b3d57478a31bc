"""`posenc inspect run=...`: analyze the attention of a trained model."""

import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.api.saved_run import run_config, training_data, training_threads
from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import command_with_modules, compose_request, print_configs
from posenc.config.console import Console
from posenc.config.errors import ConfigError
from posenc.config.identity import check_identity
from posenc.config.settings import check_settings
from posenc.data.dataset import Dataset
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.encodings.base import Encoding
from posenc.evaluation.evaluate import load_model
from posenc.inspect.inspection import publish_inspection
from posenc.inspect.run.identical_tokens import last_repeated_positions
from posenc.inspect.run.run_measurements import TrainedRun, measure_run
from posenc.inspect.run.run_tables import run_results
from posenc.model.build import build_encoding
from posenc.model.device import deterministic_numerics, select_device
from posenc.runs.run_directory import RunDirectory, find_run
from posenc.tracking import wandb_config
from posenc.tracking.build_tracker import build_tracker

SETTINGS = {
    "lengths": list[int] | None,
    "windows": int,
    "sentence": str,
    "modules": list[str],
}
MAX_SENTENCE_TOKENS = 4096
DEFAULT_FACTORS = (2, 4)
"""The default window lengths besides L, as multiples of L."""


def inspect_run(arguments: Arguments) -> int:
    """Inspect one run, and write the results to `<run>/inspect/`."""
    request = compose_request(arguments, "inspect")
    check_settings(request, SETTINGS)
    if min(request.lengths or [2]) < 2:
        raise ConfigError(f"lengths={list(request.lengths)} must all be at least 2")
    if CFG in arguments.flags:
        return print_configs([request])
    directory = find_run(request.run)
    config = run_config(directory, list(request.modules), command_with_modules(arguments))
    check_identity(config)
    config.logger = request.logger
    tracker = build_tracker(config)
    console = Console(stderr=True)
    with training_threads(directory), deterministic_numerics():
        trained = _load_run(directory, config, request, console)
        with console.status("measuring") as status:
            measurements = measure_run(trained, lambda item: status.update(f"measuring {item}"))
    results = run_results(
        directory.name, config.choices.encoding, measurements, config.train_length
    )
    folder = directory.path / "inspect"
    tracked_run = RunDirectory(directory.path.with_name(f"{directory.name}-inspect"))
    tracked_config = wandb_config.run_config(directory, config)
    command = arguments.command_line()
    publish_inspection(results, command, folder, tracker, tracked_run, tracked_config)
    return 0


def _load_run(
    directory: RunDirectory, config: DictConfig, request: DictConfig, console: Console
) -> TrainedRun:
    data = training_data(config, "train a model on the current corpus", console.print)
    model = load_model(directory, config, data.vocab_size, select_device(config))
    windows: dict[int, Tensor] = {}
    for length in _lengths(model.encoding, config.train_length, request.lengths):
        data.check_length("validation", length)
        windows[length] = data.validation_batch(length, request.windows * length)[0]
    return TrainedRun(
        model=model,
        initial_encoding=build_encoding(config),
        vocab_size=data.vocab_size,
        windows=windows,
        sentence=_sentence(data, request.sentence, model.encoding),
        precision=config.precision,
    )


def _lengths(encoding: Encoding, train_length: int, requested: list[int] | None) -> list[int]:
    """Return L and the requested lengths; by default, multiples of L that the encoding supports.

    Raises ConfigError if the encoding does not support a requested length.
    """
    limit = encoding.max_length()
    if requested is None:
        defaults = [train_length * factor for factor in DEFAULT_FACTORS]
        return [train_length, *(n for n in defaults if limit is None or n <= limit)]
    if limit is not None and max(requested, default=0) > limit:
        raise ConfigError(
            f"lengths={list(requested)}: {type(encoding).__name__} encodes at most {limit}"
            f" positions; use lengths up to {limit}"
        )
    return [train_length, *sorted({*requested} - {train_length})]


def _sentence(data: Dataset, sentence: str, encoding: Encoding) -> Tensor | str:
    """Return the token ids of the sentence, or the reason why the model cannot process it.

    Raises ConfigError if the sentence is too long to analyze, or has no token that occurs twice.
    """
    if isinstance(data.tokenizer, SymbolTokenizer):
        return "The model was trained on the symbols of a task, not on text."
    tokens = torch.tensor(data.tokenizer.encode(sentence))
    if len(tokens) > MAX_SENTENCE_TOKENS:
        raise ConfigError(
            f"sentence: {len(tokens):,} tokens exceed the limit of {MAX_SENTENCE_TOKENS:,} (hidden"
            f" states of all layers are kept in memory); use a shorter sentence"
        )
    limit = encoding.max_length()
    if limit is not None and len(tokens) > limit:
        return f"The sentence has {len(tokens)} tokens, but the encoding supports at most {limit}."
    last_repeated_positions(tokens)
    return tokens
