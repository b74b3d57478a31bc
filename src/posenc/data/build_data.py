"""Builds the data of a configuration."""

from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.data.corpus import Corpus
from posenc.data.dataset import Dataset
from posenc.data.prepare import Report, prepare
from posenc.data.tasks.task import Task
from posenc.data.tasks.task_data import TaskData
from posenc.data.tokenizers import Tokenizer, TokenizerTrainer
from posenc.data.tokenizers.symbols import SymbolTokenizer


def build_data(config: DictConfig, report: Report) -> Dataset:
    """Return the data of `config`: a task, or a corpus prepared with `config.tokenizer`.

    Raises ConfigError if data and tokenizer do not fit together.
    """
    source = data_source(config)
    return prepare(*source, Path(config.cache_dir), report) if isinstance(source, tuple) else source


def data_source(config: DictConfig) -> TaskData | tuple[Corpus, Tokenizer | TokenizerTrainer]:
    """Return a task's data, or a corpus and its tokenizer, with nothing prepared yet."""
    modules = list(config.get("modules") or [])
    corpus = build(config.data, name="data", modules=modules)
    tokenizer = build(config.tokenizer, name="tokenizer", modules=modules)
    # tokenizer=symbols is a partial, which a task completes with its symbols.
    needs_symbols = isinstance(tokenizer, partial)
    if isinstance(corpus, Task):
        if not needs_symbols:
            raise ConfigError(
                f"tokenizer: the task '{corpus.name}' defines its own symbols; leave tokenizer out"
                " or use tokenizer=symbols"
            )
        return TaskData(corpus, tokenizer(corpus.symbols))
    if needs_symbols:
        raise ConfigError(
            f"tokenizer=symbols needs a task (data=task_...), but the data '{corpus.name}' is text;"
            " use another tokenizer"
        )
    return corpus, tokenizer


def evaluation_data(
    node: DictConfig, tokenizer: Tokenizer, config: DictConfig, report: Report
) -> Dataset:
    """Return the data described by `node` in the tokens of a trained run with `config`.

    Raises ConfigError for a task whose symbols the run was not trained on.
    """
    corpus = build(node, name="data", modules=list(config.modules))
    if not isinstance(corpus, Task):
        return prepare(corpus, tokenizer, Path(config.cache_dir), report)
    if not isinstance(tokenizer, SymbolTokenizer):
        return TaskData(corpus.for_language_model(tokenizer.vocab_size - 1), tokenizer)
    if corpus.symbols != tokenizer.symbols:
        raise ConfigError(
            f"data: the task '{corpus.name}' has {len(corpus.symbols)} symbols, but the run was"
            f" trained on {len(tokenizer.symbols)} others; use the task's"
            " parameters of training"
        )
    return TaskData(corpus, tokenizer)
