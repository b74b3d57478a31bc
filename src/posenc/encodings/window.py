"""Sliding-window attention (Beltagy et al. 2020, arXiv:2004.05150), optionally with sink tokens.

score(i, j) = -inf where i - j >= size and j >= start_size: each query attends to itself, to the
size - 1 tokens before it and to the first `start_size` tokens. i and j are token indices,
even if the positions are coordinates.

StreamingLLM (Xiao et al. 2023, arXiv:2309.17453) keeps the first 4. It also limits the distance
between the query and the first tokens, because it counts positions within the cache. Here that
distance is not limited; LmInfinite limits it.
"""

from torch import Tensor

from posenc.encodings.base import Geometry, layer_encodings
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class Window(Wrapper):
    """Restricts attention with the inner encoding to the last `size` and first `start_size` tokens.

    With start_size=0, kernels skip keys that no query of a block can see.
    """

    def __init__(
        self, geometry: Geometry, *, inner: EncodingFactory, size: int = 128, start_size: int = 0
    ) -> None:
        super().__init__(geometry, inner)
        if size < 1 or start_size < 0:
            raise ValueError(
                f"size={size} must be at least 1 token and start_size={start_size} at least 0"
            )
        windows = [layer.window() for layer in layer_encodings(self.inner)]
        widest = max((size + 1 if window is None else window for window in windows), default=0)
        if widest <= size:
            raise ValueError(
                f"size={size} has no effect: inner={type(self.inner).__name__} already has a window"
                f" of {widest} tokens; choose a smaller size or another encoding"
            )
        self.size, self.start_size = size, start_size

    def window(self) -> int | None:
        inner = self.active.window()
        if self.start_size:
            return inner
        return self.size if inner is None else min(self.size, inner)

    def mask(self, query: Tensor, key: Tensor) -> Tensor | None:
        inner = self.active.mask(query, key)
        if not self.start_size:
            return inner
        visible = (query - key < self.size) | (key < self.start_size)
        return visible if inner is None else visible & inner

    def overrides(self, hook: str) -> bool:
        if hook == "mask" and not self.start_size:
            return self.active.overrides(hook)
        return super().overrides(hook)
