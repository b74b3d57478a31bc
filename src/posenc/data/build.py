"""From a configuration to data."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.data.corpus import Corpus
from posenc.data.dataset import Dataset
from posenc.data.prepare import prepare
from posenc.data.tasks.data import TaskData
from posenc.data.tasks.task import Task
from posenc.data.tokenizers import Tokenizer, Trainer
from posenc.data.tokenizers.symbols import SymbolTokenizer

Report = Callable[[str], None]


def build_data(config: DictConfig, report: Report) -> Dataset:
    """The data of `config`: a task, or a corpus in the tokens of `config.tokenizer`, prepared or
    found ready. ConfigError for a task in a text's tokens, and the other way round."""
    found = chosen_data(config)
    return prepare(*found, Path(config.cache_dir), report) if isinstance(found, tuple) else found


def chosen_data(config: DictConfig) -> TaskData | tuple[Corpus, Tokenizer | Trainer]:
    """A task's data, or a corpus and the tokenizer to prepare it with; ConfigError where they do
    not fit."""
    modules = list(config.get("modules") or [])
    corpus = build(config.data, name="data", modules=modules)
    tokenizer = build(config.tokenizer, name="tokenizer", modules=modules)
    of_a_task = isinstance(tokenizer, partial)  # of symbols that only a task can name
    if isinstance(corpus, Task):
        if not of_a_task:
            raise ConfigError(
                f"tokenizer: the task '{corpus.name}' has symbols of its own; leave tokenizer out,"
                " or give tokenizer=symbols"
            )
        return TaskData(corpus, tokenizer(corpus.symbols))
    if of_a_task:
        raise ConfigError(
            f"tokenizer=symbols are a task's, but the data '{corpus.name}' is text; give a task"
            " (data=task_...) or another tokenizer"
        )
    return corpus, tokenizer


def data_of_a_run(
    node: DictConfig, tokenizer: Tokenizer, config: DictConfig, report: Report
) -> Dataset:
    """What `node` describes in the tokens of a run, whose configuration is `config`; ConfigError
    for a task that has others."""
    corpus = build(node, name="data", modules=list(config.modules))
    if not isinstance(corpus, Task):
        return prepare(corpus, tokenizer, Path(config.cache_dir), report)
    if not isinstance(tokenizer, SymbolTokenizer):
        return TaskData(corpus.in_tokens(tokenizer.vocab_size - 1), tokenizer)
    if corpus.symbols != tokenizer.symbols:
        raise ConfigError(
            f"data: the task '{corpus.name}' has {len(corpus.symbols)} symbols, which are not the"
            f" {len(tokenizer.symbols)} that the run was trained on; give those knobs of the run"
        )
    return TaskData(corpus, tokenizer)
