"""Words separated by whitespace, as in WikiText (Merity et al. 2016, arXiv:1609.07843)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import normalizers

from posenc.config.values import json_digest
from posenc.data.corpus import Corpus, split_lines
from posenc.data.tokenizers.symbols import tokens_by_id, word_level_tokenizer
from posenc.data.tokenizers.tokenizer import Ids, Tokenizer, TokenizerTrainer

_END_OF_LINE = "<eos>"
_UNKNOWN = "<unk>"
_BATCH_TOKENS = 1 << 18


class WordTokenizer(Tokenizer):
    """Maps each of `words` to an id; <eos> ends every line, <unk> stands for all other words.

    A document ends with its last line, so `eos_id` is the id of <eos>.
    """

    kind = "word"
    eos_token = _END_OF_LINE

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._ids = {word: id for id, word in enumerate(words)}
        self._unknown_id = self._ids[_UNKNOWN]
        self.eos_id = self._ids[_END_OF_LINE]
        self.vocab_size = len(words)

    def encode_documents(self, documents: Iterable[str]) -> Iterator[Ids]:
        ids: list[int] = []
        for words in _words_by_line(documents):
            ids += [self._ids.get(word, self._unknown_id) for word in words]
            if len(ids) >= _BATCH_TOKENS:
                yield np.array(ids, dtype=np.uint32)
                ids = []
        yield np.array(ids, dtype=np.uint32)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, with an <eos> for every newline."""
        return super().encode(text + "\n")

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words separated by spaces, and the lines separated by newlines."""
        text = " ".join("\n" if id == self.eos_id else self._words[id] for id in ids)
        return text.replace(" \n", "\n").replace("\n ", "\n")

    def state(self) -> dict[str, Any]:
        return {"words": self._words}

    def to_huggingface(self) -> HuggingFaceTokenizer:
        tokenizer = word_level_tokenizer(self._words, unknown=_UNKNOWN)
        tokenizer.normalizer = normalizers.Replace("\n", f" {_END_OF_LINE} ")
        return tokenizer

    @classmethod
    def from_huggingface(cls, tokenizer: HuggingFaceTokenizer, eos_token: str) -> Self:
        return cls(tokens_by_id(tokenizer))


class WordTrainer(TokenizerTrainer):
    """Builds a vocabulary: the train split's words, <eos> and <unk>, most frequent first.

    Words of equal frequency are sorted alphabetically.
    """

    def expected_vocab_size(self, corpus: Corpus) -> int | None:
        return corpus.vocab_size

    def expected_tokens(self, documents: Iterable[str]) -> int:
        return sum(map(len, _words_by_line(documents)))

    def train(self, documents: Iterable[str]) -> WordTokenizer:
        counts = Counter(word for words in _words_by_line(documents) for word in words)
        words = sorted(counts.keys() | {_UNKNOWN, _END_OF_LINE}, key=lambda w: (-counts[w], w))
        return WordTokenizer(words)

    def digest(self) -> str:
        return json_digest(["word"])


def _words_by_line(documents: Iterable[str]) -> Iterator[list[str]]:
    for document in documents:
        for line in split_lines(document):
            yield [*line.split(), _END_OF_LINE]
