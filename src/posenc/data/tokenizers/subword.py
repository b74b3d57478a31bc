"""Tokenizers of the `tokenizers` library: learned here, or pretrained."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer as Model

from posenc.data.tokenizers.base import Ids, Tokenizer

_BATCH = 1 << 22  # characters
_PIECE = 1 << 16
# GPT-2's pre-tokenizer ends a token before such a space whatever stands around it.
_SAFE_CUT = re.compile(r"(?<=\w)[ \n](?=\w)")


class SubwordTokenizer(Tokenizer):
    """`model` with the token that ends every document.

    Special tokens that are spelled out in a document are encoded as the text that they are.
    """

    kind = "subword"

    def __init__(self, model: Model, end_of_text: str) -> None:
        model.no_truncation()
        model.no_padding()
        model.encode_special_tokens = True
        self._model, self._ending = model, end_of_text
        self._serialised: dict[str, Any] = json.loads(model.to_str())
        self._cuts_safely = _cuts_safely(self._serialised)
        vocabulary = model.get_vocab()
        self.end_of_text = vocabulary[end_of_text]
        self.vocab_size = max(vocabulary.values()) + 1

    def encode(self, documents: Iterable[str]) -> Iterator[Ids]:
        """Long documents go through in pieces where that changes nothing: faster, less memory."""
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
        kept = [int(id) for id in ids if id != self.end_of_text]
        return self._model.decode(kept, skip_special_tokens=False)

    def state(self) -> dict[str, Any]:
        return {"model": self._serialised, "end_of_text": self._ending}

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        return cls(Model.from_str(json.dumps(state["model"])), state["end_of_text"])

    def _pieces(self, documents: Iterable[str]) -> Iterator[tuple[str, bool]]:
        """Pieces of the documents, each with whether it ends one."""
        for document in documents:
            start = 0
            while self._cuts_safely and (cut := _SAFE_CUT.search(document, start + _PIECE)):
                yield document[start : cut.start()], False
                start = cut.start()
            yield document[start:], True

    def _encode_batch(self, batch: list[tuple[str, bool]]) -> Ids:
        texts = [text for text, _ in batch]
        encodings = self._model.encode_batch_fast(texts, add_special_tokens=False)
        parts = []
        for encoding, (_, ends) in zip(encodings, batch, strict=True):
            parts.append(np.array(encoding.ids, dtype=np.uint32))
            if ends:
                parts.append(np.array([self.end_of_text], dtype=np.uint32))
        return np.concatenate(parts)


def _cuts_safely(serialised: dict[str, Any]) -> bool:
    """Whether the pre-tokenizer is GPT-2's and nothing before it looks across a cut."""
    before = serialised["pre_tokenizer"] or {}
    return (
        serialised["normalizer"] is None
        and before.get("type") == "ByteLevel"
        and before.get("use_regex", True)
        and not before["add_prefix_space"]
        and all(token["special"] for token in serialised["added_tokens"])
    )
