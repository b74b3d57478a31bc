"""The size of a vocabulary, without preparing the data."""

from pathlib import Path

from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.data.build_data import data_source
from posenc.data.dataset import Dataset
from posenc.data.prepare import fingerprint
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers import Tokenizer


def vocabulary_of(config: DictConfig) -> tuple[int, Dataset | None]:
    """Tokens of the vocabulary, and the data where they have been prepared.

    Else the tokenizer's own number, or what the corpus is known to have; ConfigError without any.
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
    known = tokenizer.expected_vocab_size(corpus)
    if known is None:
        raise ConfigError(
            f"the vocabulary of tokenizer={config.choices.tokenizer} on data={config.choices.data}"
            f" is known once it is prepared; train on it first, or give tokenizer=bpe"
        )
    return known, None
