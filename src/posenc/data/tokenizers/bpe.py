"""Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909; bytes as in GPT-2)."""

from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer as Model
from tokenizers import decoders, models, pre_tokenizers, trainers

from posenc.config.errors import ConfigError
from posenc.data.corpus import Corpus
from posenc.data.digest import digest_of
from posenc.data.tokenizers.base import Trainer
from posenc.data.tokenizers.subword import SubwordTokenizer

_END_OF_TEXT = "<|endoftext|>"
_SMALLEST = 257  # the bytes and the end of text


class BPETrainer(Trainer):
    """Learns `vocabulary` tokens from the first `train_bytes` bytes of the train split.

    The special token <|endoftext|> is one of them. A small corpus may give fewer.
    """

    def __init__(self, vocabulary: int, train_bytes: int) -> None:
        if vocabulary < _SMALLEST:
            raise ConfigError(
                f"tokenizer.vocabulary: {vocabulary} is less than {_SMALLEST} (256 bytes and the "
                "end of text); give more or take tokenizer=byte"
            )
        if train_bytes < 1:
            raise ConfigError(f"tokenizer.train_bytes: {train_bytes} is less than 1; give more")
        self.vocabulary, self.train_bytes = vocabulary, train_bytes

    def vocabulary_of(self, corpus: Corpus) -> int:
        return self.vocabulary

    def train(self, documents: Iterable[str]) -> SubwordTokenizer:
        model = Model(models.BPE())
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            special_tokens=[_END_OF_TEXT],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        model.train_from_iterator(_first_bytes(documents, self.train_bytes), trainer)
        return SubwordTokenizer(model, _END_OF_TEXT)

    def digest(self) -> str:
        return digest_of(["bpe", self.vocabulary, self.train_bytes])


def _first_bytes(documents: Iterable[str], size: int) -> Iterator[str]:
    for document in documents:
        data = document.encode()[:size]
        yield data.decode(errors="ignore")
        size -= len(data)
        if size == 0:
            return
