"""Tokenizers of the Hugging Face `tokenizers` library: learned here, or pretrained."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer as Model

from posenc.config.errors import ConfigError, did_you_mean
from posenc.data.tokenizers.tokenizer import Ids, Tokenizer

_BATCH = 1 << 22  # characters
_PIECE = 1 << 16
# GPT-2's pre-tokenizer always ends a token before such a space or newline.
_SAFE_CUT = re.compile(r"(?<=\w)[ \n](?=\w)")


class SubwordTokenizer(Tokenizer):
    """`model` with `eos_token` at the end of every document.

    Special tokens that are spelled out in a document are encoded as ordinary text.
    """

    kind = "subword"

    def __init__(self, model: Model, eos_token: str) -> None:
        model.no_truncation()
        model.no_padding()
        model.encode_special_tokens = True
        self._model, self._eos_token = model, eos_token
        self._serialised: dict[str, Any] = json.loads(model.to_str())
        self._can_cut = _can_cut(self._serialised)
        vocabulary = model.get_vocab()
        self.eos_id = vocabulary[eos_token]
        self.vocab_size = max(vocabulary.values()) + 1

    def encode(self, documents: Iterable[str]) -> Iterator[Ids]:
        """Yield arrays of ids, encoding long documents in pieces where that changes no token.

        Pieces are faster than whole documents and need less memory.
        """
        batch: list[tuple[str, bool]] = []
        size = 0
        for piece in self._pieces(documents):
            batch.append(piece)
            size += len(piece[0])
            if size >= _BATCH:
                yield self._encode_batch(batch)
                batch, size = [], 0
        if batch:
            yield self._encode_batch(batch)

    def decode(self, ids: Iterable[int]) -> str:
        kept = [int(id) for id in ids if id != self.eos_id]
        return self._model.decode(kept, skip_special_tokens=False)

    def state(self) -> dict[str, Any]:
        return {"model": self._serialised, "end_of_text": self._eos_token}

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        return cls(Model.from_str(json.dumps(state["model"])), state["end_of_text"])

    def _pieces(self, documents: Iterable[str]) -> Iterator[tuple[str, bool]]:
        """Yield pieces of the documents, each with whether it is the last of its document."""
        for document in documents:
            start = 0
            while self._can_cut and (cut := _SAFE_CUT.search(document, start + _PIECE)):
                yield document[start : cut.start()], False
                start = cut.start()
            yield document[start:], True

    def _encode_batch(self, batch: list[tuple[str, bool]]) -> Ids:
        texts = [text for text, _ in batch]
        encodings = self._model.encode_batch_fast(texts, add_special_tokens=False)
        parts = []
        for encoding, (_, is_last) in zip(encodings, batch, strict=True):
            parts.append(np.array(encoding.ids, dtype=np.uint32))
            if is_last:
                parts.append(np.array([self.eos_id], dtype=np.uint32))
        return np.concatenate(parts)


def pretrained(path: str | None, eos_token: str) -> SubwordTokenizer:
    """Return the tokenizer in `path`, a tokenizer.json of the `tokenizers` library."""
    if path is None:
        raise ConfigError("tokenizer.path is missing; set it to a tokenizer.json of `tokenizers`")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"tokenizer.path: '{path}' does not exist; set it to a tokenizer.json")
    try:
        model = Model.from_file(str(file))
    except Exception as error:
        raise ConfigError(
            f"tokenizer.path: '{path}' is not a file of the `tokenizers` library: {error}"
        ) from None
    vocabulary = model.get_vocab()
    if eos_token not in vocabulary:
        raise ConfigError(
            f"tokenizer.eos_token: '{eos_token}' is not one of the {len(vocabulary)} tokens "
            f"of '{path}'{did_you_mean(eos_token, vocabulary)}; set the one that ends a document"
        )
    return SubwordTokenizer(model, eos_token)


def _can_cut(serialised: dict[str, Any]) -> bool:
    """Return whether documents can be cut at `_SAFE_CUT` without changing a token.

    That needs GPT-2's pre-tokenizer and nothing before it that looks across a cut.
    """
    pre_tokenizer = serialised["pre_tokenizer"] or {}
    return (
        serialised["normalizer"] is None
        and pre_tokenizer.get("type") == "ByteLevel"
        and pre_tokenizer.get("use_regex", True)
        and not pre_tokenizer["add_prefix_space"]
        and all(token["special"] for token in serialised["added_tokens"])
    )
