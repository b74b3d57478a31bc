"""A sliding window: no key is seen further back than some tokens (Beltagy et al. 2020, 2004.05150).

score(i, j) = -inf where i - j >= size, so that the query itself counts as one of `size` keys.
i and j count tokens, whatever their coordinates; the mask is [R, K], on the scores [B, H, R, K].
"""

from posenc.encodings.base import Geometry
from posenc.encodings.wrapper import Inner, Wrapper


class Window(Wrapper):
    """The inner encoding, over the last `size` tokens; kernels skip what no row sees."""

    def __init__(self, geometry: Geometry, *, inner: Inner, size: int = 128) -> None:
        super().__init__(geometry, inner)
        if size < 1:
            raise ValueError(f"size={size} must be 1 or more tokens")
        self.size = size

    def window(self) -> int:
        inner = self.here.window()
        return self.size if inner is None else min(self.size, inner)
