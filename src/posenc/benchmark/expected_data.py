"""What is known about the data of a run before it is prepared."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.data.build_data import data_source
from posenc.data.corpus import Corpus
from posenc.data.dataset import Dataset, Examples, TokenArray, no_examples_error
from posenc.data.prepare import fingerprint
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers import Tokenizer, TokenizerTrainer
from posenc.evaluation.requests import EvaluationData


@dataclass(frozen=True)
class ExpectedData:
    """The vocabulary size, and the data that the evaluation reads, or None if its size is unknown.

    If the data has not been prepared, `splits` has only the expected number of tokens.
    """

    vocab_size: int
    splits: EvaluationData | None

    @property
    def is_prepared(self) -> bool:
        return isinstance(self.splits, Dataset)


@dataclass(frozen=True)
class ExpectedText:
    """The evaluation split of a corpus that has not been prepared: `num_tokens` equal tokens."""

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
    if corpus.is_downloaded or split not in corpus.splits():
        return None
    num_tokens = tokenizer.expected_tokens(corpus.documents(split))
    return None if num_tokens is None else ExpectedText(corpus.name, num_tokens)
