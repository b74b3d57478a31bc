"""Attention within chunks of tokens, as in Llama 4 (Meta 2025; Hugging Face's modeling_llama4.py).

score(i, j) = -inf where floor(i / size) != floor(j / size): a query attends to the tokens of its
chunk up to itself, so the first token of a chunk attends only to itself. i and j count tokens,
regardless of their coordinates.
"""

from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class Chunked(Wrapper):
    """Restricts attention with the inner encoding to consecutive chunks of `size` tokens."""

    def __init__(self, geometry: Geometry, *, inner: EncodingFactory, size: int = 128) -> None:
        super().__init__(geometry, inner)
        if size < 1:
            raise ValueError(f"size={size} must be at least 1 token")
        self.size = size

    def window(self) -> int:
        inner = self.active.window()
        return self.size if inner is None else min(self.size, inner)

    def mask(self, query: Tensor, key: Tensor) -> Tensor:
        same_chunk = query // self.size == key // self.size
        inner = self.active.mask(query, key)
        return same_chunk if inner is None else same_chunk & inner
