"""Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909; Radford et al. 2019)."""

import math
from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from posenc.config.errors import ConfigError
from posenc.config.settings import LIMITS
from posenc.config.values import json_digest
from posenc.data.corpus import Corpus
from posenc.data.tokenizers.subword import SubwordTokenizer
from posenc.data.tokenizers.tokenizer import TokenizerTrainer

_EOS_TOKEN = "<|endoftext|>"
_MIN_VOCAB_SIZE = 257  # 256 bytes and the end-of-text token
_BYTES_PER_BIT = 0.29
"""The bytes of text per token, divided by log2(vocab_size): 0.24 to 0.29 for Python source and
vocabularies of 512 to 2,048 tokens."""


class BPETrainer(TokenizerTrainer):
    """Trains BPE with `vocab_size` tokens on the first `train_bytes` bytes of the train split.

    One of the tokens is the special token <|endoftext|>. A small corpus may yield fewer tokens.
    """

    def __init__(self, vocab_size: int, train_bytes: int) -> None:
        if vocab_size < _MIN_VOCAB_SIZE:
            raise ConfigError(
                f"tokenizer.vocab_size={vocab_size} must be at least {_MIN_VOCAB_SIZE} (256 bytes"
                " and the end-of-text token); use a larger one, or tokenizer=byte"
            )
        limit, reason = LIMITS["vocab_size"]
        if vocab_size > limit:
            raise ConfigError(
                f"tokenizer.vocab_size={vocab_size} must be at most {limit:,}, {reason}"
            )
        if train_bytes < 1:
            raise ConfigError(f"tokenizer.train_bytes={train_bytes} must be at least 1")
        self.vocab_size, self.train_bytes = vocab_size, train_bytes

    def expected_vocab_size(self, corpus: Corpus) -> int:
        return self.vocab_size

    def expected_tokens(self, documents: Iterable[str]) -> int:
        size = sum(len(document.encode()) for document in documents)
        return round(size / (_BYTES_PER_BIT * math.log2(self.vocab_size)))

    def train(self, documents: Iterable[str]) -> SubwordTokenizer:
        tokenizer = HuggingFaceTokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            special_tokens=[_EOS_TOKEN],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(_first_bytes(documents, self.train_bytes), trainer)
        return SubwordTokenizer(tokenizer, _EOS_TOKEN)

    def digest(self) -> str:
        return json_digest(["bpe", self.vocab_size, self.train_bytes])


def _first_bytes(documents: Iterable[str], size: int) -> Iterator[str]:
    for document in documents:
        data = document.encode()[:size]
        yield data.decode(errors="ignore")
        size -= len(data)
        if size == 0:
            return
