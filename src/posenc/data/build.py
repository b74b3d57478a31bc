"""From a configuration to tokenised data."""

from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig

from posenc.config.components import build
from posenc.data.prepare import prepare
from posenc.data.tokenized import TokenizedData

Report = Callable[[str], None]


def build_data(config: DictConfig, report: Report) -> TokenizedData:
    """The corpus of `config.data` in the tokens of `config.tokenizer`, prepared or found ready."""
    modules = list(config.get("modules") or [])
    corpus = build(config.data, name="data", modules=modules)
    tokenizer = build(config.tokenizer, name="tokenizer", modules=modules)
    return prepare(corpus, tokenizer, Path(config.cache_dir), report)
