"""Subword tokenizers of the Hugging Face `tokenizers` library, trained here or pretrained."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer as HuggingFaceTokenizer

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.settings import LIMITS
from posenc.data.tokenizers.huggingface import library_errors, load_library_tokenizer
from posenc.data.tokenizers.tokenizer import Ids, Tokenizer

_BATCH_CHARACTERS = 1 << 22
_PIECE_CHARACTERS = 1 << 16
# GPT-2's pre-tokenizer always starts a new token at a space or newline between word characters.
_SAFE_CUT = re.compile(r"(?<=\w)[ \n](?=\w)")


class SubwordTokenizer(Tokenizer):
    """A Hugging Face tokenizer that ends every document with `eos_token`.

    Special tokens that are spelled out in a document are encoded as ordinary text.
    """

    kind = "subword"

    def __init__(self, tokenizer: HuggingFaceTokenizer, eos_token: str) -> None:
        tokenizer.encode_special_tokens = True
        self._tokenizer, self.eos_token = tokenizer, eos_token
        self._serialized: dict[str, Any] = json.loads(tokenizer.to_str())
        self._can_cut = _can_cut(self._serialized)
        vocabulary = tokenizer.get_vocab()
        self.eos_id = vocabulary[eos_token]
        self.vocab_size = max(vocabulary.values()) + 1
        limit, reason = LIMITS["vocab_size"]
        if self.vocab_size > limit:
            raise ConfigError(
                f"its vocabulary size {self.vocab_size:,} exceeds {limit:,}, {reason}"
            )

    def encode_documents(self, documents: Iterable[str]) -> Iterator[Ids]:
        """Yield arrays of ids.

        Long documents are encoded in pieces, which is faster and needs less memory, if splitting
        them does not change any token.
        """
        batch: list[tuple[str, bool]] = []
        characters = 0
        for piece in self._pieces(documents):
            batch.append(piece)
            characters += len(piece[0])
            if characters >= _BATCH_CHARACTERS:
                yield self._encode_batch(batch)
                batch, characters = [], 0
        if batch:
            yield self._encode_batch(batch)

    def decode(self, ids: Iterable[int]) -> str:
        kept = [int(id) for id in ids if id != self.eos_id]
        with library_errors("the tokenizer cannot decode these ids"):
            return self._tokenizer.decode(kept, skip_special_tokens=False)

    def state(self) -> dict[str, Any]:
        return {"model": self._serialized, "end_of_text": self.eos_token}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        return cls(load_library_tokenizer(json.dumps(state["model"])), state["end_of_text"])

    def to_huggingface(self) -> HuggingFaceTokenizer:
        return self._tokenizer

    @classmethod
    def from_huggingface(cls, tokenizer: HuggingFaceTokenizer, eos_token: str) -> Self:
        return cls(tokenizer, eos_token)

    def _pieces(self, documents: Iterable[str]) -> Iterator[tuple[str, bool]]:
        """Yield pieces of the documents, each with a flag for the last piece of a document."""
        for document in documents:
            start = 0
            while self._can_cut and (cut := _SAFE_CUT.search(document, start + _PIECE_CHARACTERS)):
                yield document[start : cut.start()], False
                start = cut.start()
            yield document[start:], True

    def _encode_batch(self, batch: list[tuple[str, bool]]) -> Ids:
        strings = [string for string, _ in batch]
        with library_errors("the tokenizer cannot encode this text"):
            encodings = self._tokenizer.encode_batch_fast(strings, add_special_tokens=False)
        arrays = []
        for encoding, (_, is_last) in zip(encodings, batch, strict=True):
            arrays.append(np.array(encoding.ids, dtype=np.uint32))
            if is_last:
                arrays.append(np.array([self.eos_id], dtype=np.uint32))
        return np.concatenate(arrays)


def pretrained(path: str | None, eos_token: str) -> SubwordTokenizer:
    """Return the tokenizer in `path`, a tokenizer.json of the `tokenizers` library.

    Raises ConfigError if the file does not exist, cannot be used or has no token `eos_token`.
    """
    if path is None:
        raise ConfigError("tokenizer.path is missing; set it to a tokenizer.json file")
    file = Path(os.path.expanduser(path))
    if not file.is_file():
        reason = "is not a regular file" if file.exists() else "does not exist"
        raise ConfigError(f"tokenizer.path: '{path}' {reason}; set it to a tokenizer.json")
    try:
        tokenizer = load_library_tokenizer(file.read_text(encoding="utf-8"))
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"tokenizer.path: '{path}' is not a tokenizer.json that posenc can use: {error}"
        ) from None
    vocabulary = tokenizer.get_vocab()
    if eos_token not in vocabulary:
        raise ConfigError(
            f"tokenizer.eos_token: '{eos_token}' is not one of the {len(vocabulary)} tokens"
            f" of '{path}'{did_you_mean(eos_token, vocabulary)}; set it to the token that ends"
            f" a document"
        )
    try:
        return SubwordTokenizer(tokenizer, eos_token)
    except ConfigError as error:
        raise ConfigError(f"tokenizer.path: '{path}' cannot be used: {error}") from None


def _can_cut(serialized: dict[str, Any]) -> bool:
    """Return whether documents can be cut at `_SAFE_CUT` without changing any token.

    This requires GPT-2's pre-tokenizer, and no earlier step that could act across a cut.
    """
    pre_tokenizer = serialized["pre_tokenizer"] or {}
    return (
        serialized["normalizer"] is None
        and pre_tokenizer.get("type") == "ByteLevel"
        and pre_tokenizer.get("use_regex", True)
        and not pre_tokenizer["add_prefix_space"]
        and all(token["special"] for token in serialized["added_tokens"])
    )
