"""`posenc inspect run=...`: what a trained run has made of its encoding."""

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from torch import Tensor

from posenc.cli.arguments import Arguments
from posenc.cli.targets import run_directory, training_data
from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.config.grids import expand
from posenc.config.resolve import compose_resolved
from posenc.config.settings import check_settings
from posenc.data.dataset import Dataset
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.encodings.base import Encoding
from posenc.evaluation.evaluate import load_model
from posenc.inspect.run.findings import findings
from posenc.inspect.run.measure import Subject, measure
from posenc.inspect.write import mirror, show, write
from posenc.model.build import build_encoding
from posenc.model.device import device_of
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.tracker import Tracker
from posenc.tracking.wandb_config import run_config

SETTINGS = {
    "lengths": list[int] | None,
    "windows": int,
    "sentence": str,
    "modules": list[str],
}
FACTORS = (2, 4)
"""Lengths beside L where none are given, as multiples of it."""


def run(arguments: Arguments) -> int:
    """One run; its files go to the run's own folder."""
    if len(expand(None, arguments.overrides)) > 1:
        raise ConfigError("run: one page shows one run; give a single value of each key")
    asked = _asked(arguments)
    target = run_directory(asked.run)
    config = target.config()
    config.modules, config.logger = asked.modules, asked.logger
    tracker: Tracker = build(config.logger, name="logger", modules=list(config.modules))
    torch.set_num_threads(target.status().resolved.get("threads", torch.get_num_threads()))
    console = Console(stderr=True)
    subject = _subject(target, config, asked, console)
    with console.status("measuring") as status:
        measured = measure(subject, lambda what: status.update(f"measuring {what}"))
    found = findings(target.name, measured, config.train_length)
    folder = target.path / "inspect"
    index = write(folder, found, arguments.command_line())
    called = RunDirectory(target.path.with_name(f"{target.name}-inspect"))
    mirror(tracker, called, folder, found, run_config(target, config))
    show(Console(), found, index)
    return 0


def _asked(arguments: Arguments) -> DictConfig:
    asked = OmegaConf.create(
        compose_resolved("inspect", arguments.overrides, arguments.config_dirs)
    )
    check_settings(asked, SETTINGS)
    if asked.windows < 1 or min(asked.lengths or [2]) < 2:
        raise ConfigError(
            f"windows={asked.windows} must be 1 or more, lengths={asked.lengths} of 2 or more each"
        )
    return asked


def _subject(
    target: RunDirectory, config: DictConfig, asked: DictConfig, console: Console
) -> Subject:
    remedy = "train a run on the corpus as it is now"
    data = training_data(config, remedy, console.print)
    model = load_model(target, config, data.vocab_size, device_of(config))
    lengths = _lengths(model.encoding, config.train_length, asked.lengths)
    return Subject(
        model=model,
        initial=build_encoding(config, list(config.modules)),
        vocabulary=data.vocab_size,
        windows={length: _windows(data, length, asked.windows) for length in lengths},
        sentence=_sentence(data, asked.sentence, model.encoding),
        precision=config.precision,
    )


def _lengths(encoding: Encoding, trained: int, asked: list[int] | None) -> list[int]:
    """L, then the others; of the usual ones those that the encoding can serve."""
    limit = encoding.max_length()
    if asked is None:
        wanted = [trained * factor for factor in FACTORS]
        return [trained, *(n for n in wanted if limit is None or n <= limit)]
    if limit is not None and max(asked) > limit:
        raise ConfigError(
            f"lengths={list(asked)}: {type(encoding).__name__} encodes at most {limit} positions;"
            f" give lengths up to {limit}"
        )
    return [trained, *sorted({*asked} - {trained})]


def _windows(data: Dataset, length: int, count: int) -> Tensor:
    """So many windows, or all there are, spread over the validation split."""
    data.check_length("validation", length)
    return data.validation_batch(length, count * length)[0]


def _sentence(data: Dataset, sentence: str, encoding: Encoding) -> Tensor | str:
    """Its tokens, without the end of text; or why the model cannot read it."""
    if isinstance(data.tokenizer, SymbolTokenizer):
        return "The model reads symbols of a task: there is no sentence for it."
    (ids,) = data.tokenizer.encode([sentence])
    tokens = torch.from_numpy(ids[ids != data.tokenizer.eos_id].astype(np.int64))
    limit = encoding.max_length()
    if limit is not None and len(tokens) > limit:
        return f"The sentence has {len(tokens)} tokens, more than the {limit} positions there are."
    return tokens
