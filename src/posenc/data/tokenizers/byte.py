"""UTF-8 bytes as tokens."""

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from posenc.data.tokenizers.tokenizer import Ids, Tokenizer


class ByteTokenizer(Tokenizer):
    """Ids 0 to 255 are bytes; id 256 ends every document."""

    kind = "byte"
    vocab_size = 257
    eos_id = 256
    eos_token = "<|endoftext|>"

    def encode_documents(self, documents: Iterable[str]) -> Iterator[Ids]:
        for document in documents:
            data = np.frombuffer(document.encode(), dtype=np.uint8)
            yield np.append(data, self.eos_id).astype(np.uint32)

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(id for id in ids if id != self.eos_id).decode(errors="replace")

    def state(self) -> dict[str, Any]:
        return {}

    def to_huggingface(self) -> HuggingFaceTokenizer:
        vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
        tokenizer = HuggingFaceTokenizer(models.BPE(vocab=vocabulary, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(self.eos_token, special=True)])
        return tokenizer

    @classmethod
    def from_huggingface(cls, tokenizer: HuggingFaceTokenizer, eos_token: str) -> Self:
        return cls()


def _byte_characters() -> list[str]:
    """Return the character that represents each byte in GPT-2's byte-level vocabularies.

    Printable bytes represent themselves. The others are mapped, in order, to the characters from
    code point 256 on.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = {ord(character) for character in alphabet if ord(character) < 256}
    others = iter(character for character in alphabet if ord(character) >= 256)
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]
