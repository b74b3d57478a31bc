"""Sliding-window attention (Beltagy et al. 2020, 2004.05150).

score(i, j) = -inf where i - j >= size, so that the query itself is one of `size` keys.
i and j count tokens, whatever their coordinates; the mask [R, K] applies to scores [B, H, R, K].
"""

from posenc.encodings.base import Geometry
from posenc.encodings.wrapper import Inner, Wrapper


class Window(Wrapper):
    """The inner encoding over the last `size` tokens; kernels skip keys that no query sees."""

    def __init__(self, geometry: Geometry, *, inner: Inner, size: int = 128) -> None:
        super().__init__(geometry, inner)
        if size < 1:
            raise ValueError(f"size={size} must be 1 token or more")
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
