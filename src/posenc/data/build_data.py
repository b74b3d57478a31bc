"""Builds the dataset that a configuration describes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.data.corpus import Corpus
from posenc.data.dataset import Dataset
from posenc.data.prepare import ProgressCallback, prepare
from posenc.data.tasks.task import Task
from posenc.data.tasks.task_data import TaskData
from posenc.data.tokenizers import Tokenizer, TokenizerTrainer
from posenc.data.tokenizers.symbols import SymbolTokenizer

DataSource = Corpus | Task
TokenizerSource = (
    Tokenizer | TokenizerTrainer | Callable[[Sequence[str]], Tokenizer]  # the last is for tasks
)


def build_data(config: DictConfig, on_progress: ProgressCallback) -> Dataset:
    """Return the dataset of `config`: a task, or a corpus prepared with `config.tokenizer`.

    Raises ConfigError if the data and the tokenizer are incompatible.
    """
    source = data_source(config)
    if isinstance(source, TaskData):
        return source
    return prepare(*source, Path(config.cache_dir), on_progress)


def data_source(config: DictConfig) -> TaskData | tuple[Corpus, Tokenizer | TokenizerTrainer]:
    """Return the data of a task, or a corpus and its tokenizer, without preparing anything."""
    modules = list(config.get("modules") or [])
    source = build(config.data, name="data", modules=modules)
    tokenizer = build(config.tokenizer, name="tokenizer", modules=modules)
    # tokenizer=symbols is a functools.partial, which is called with the symbols of a task.
    needs_symbols = isinstance(tokenizer, partial)
    if isinstance(source, Task):
        if not needs_symbols:
            raise ConfigError(
                f"tokenizer: the task '{source.name}' defines its own symbols; leave tokenizer out"
                " or use tokenizer=symbols"
            )
        return TaskData(source, tokenizer(source.symbols))
    if needs_symbols:
        raise ConfigError(
            f"tokenizer=symbols needs a task (data=task_...), but the data '{source.name}' is text;"
            " use another tokenizer"
        )
    return source, tokenizer


def saved_task(config: Mapping[str, Any]) -> Task | None:
    """Return the task that a run with this saved configuration was trained on.

    Returns None for text, for custom tasks, and for tasks that generate different examples in this
    version than in the one that trained the run.
    """
    if not str(config["data"].get("_target_")).startswith("posenc.data.tasks."):
        return None  # building a corpus may open files
    try:
        task = build(OmegaConf.create(config["data"]), name="data")
        if not isinstance(task, Task):
            return None
        fingerprint = TaskData(task, SymbolTokenizer(task.symbols)).fingerprint
    except (ConfigError, ValueError, MemoryError):  # the file may have been edited
        return None
    return task if fingerprint == config["planned"]["fingerprint"] else None


def evaluation_data(
    data_config: DictConfig, tokenizer: Tokenizer, config: DictConfig, on_progress: ProgressCallback
) -> Dataset:
    """Return the dataset that `data_config` describes, tokenized for a run trained with `config`.

    Raises ConfigError for text if the run was trained on a task, for a task whose symbols differ
    from the run's, and for a task that does not fit a language model's vocabulary.
    """
    source = build(data_config, name="data", modules=list(config.modules))
    if not isinstance(source, Task):
        if isinstance(tokenizer, SymbolTokenizer):
            raise ConfigError(
                f"data: '{source.name}' is text, but the run was trained on a task and has only"
                " its symbols in the vocabulary; use data=task_..."
            )
        return prepare(source, tokenizer, Path(config.cache_dir), on_progress)
    if not isinstance(tokenizer, SymbolTokenizer):
        try:
            task = source.for_language_model(tokenizer.vocab_size - 1)
        except ValueError as error:
            raise ConfigError(f"data: {error}") from None
        return TaskData(task, tokenizer)
    if source.symbols != tokenizer.symbols:
        raise ConfigError(
            f"data: the task '{source.name}' has {len(source.symbols)} symbols, which differ from"
            f" the {len(tokenizer.symbols)} symbols that the run was trained on; use the same task"
            " parameters as in training"
        )
    return TaskData(source, tokenizer)
