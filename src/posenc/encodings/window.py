"""Sliding-window attention (Beltagy et al. 2020, 2004.05150).

score(i, j) = -inf where i - j >= size: each query attends to itself and to the size - 1 tokens
before it. i and j count tokens, regardless of their coordinates.
"""

from posenc.encodings.base import Geometry
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class Window(Wrapper):
    """The inner encoding within the last `size` tokens; kernels skip keys outside every window."""

    def __init__(self, geometry: Geometry, *, inner: EncodingFactory, size: int = 128) -> None:
        super().__init__(geometry, inner)
        if size < 1:
            raise ValueError(f"size={size} must be at least 1 token")
        windows = [self.inner.at_layer(index).window() for index in range(geometry.layers)]
        widest = max((size + 1 if window is None else window for window in windows), default=0)
        if widest <= size:
            raise ValueError(
                f"size={size} has no effect: inner={type(self.inner).__name__} already has a window"
                f" of {widest} tokens; choose a smaller size or another encoding"
            )
        self.size = size

    def window(self) -> int:
        inner = self.active.window()
        return self.size if inner is None else min(self.size, inner)
