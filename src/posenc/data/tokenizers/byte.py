"""UTF-8 bytes as tokens."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from posenc.data.tokenizers.tokenizer import Ids, Tokenizer


class ByteTokenizer(Tokenizer):
    """Ids 0 to 255 are bytes; id 256 ends every document."""

    kind = "byte"
    vocab_size = 257
    eos_id = 256

    def encode(self, documents: Iterable[str]) -> Iterator[Ids]:
        for document in documents:
            data = np.frombuffer(document.encode(), dtype=np.uint8)
            yield np.append(data, self.eos_id).astype(np.uint32)

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(id for id in ids if id != self.eos_id).decode(errors="replace")

    def state(self) -> dict[str, Any]:
        return {}
