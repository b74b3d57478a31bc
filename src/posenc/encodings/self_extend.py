"""Self-Extend: grouped positions for distant keys (Jin et al. 2024, arXiv:2401.01325).

    score(i, j) = (R(i) q_i) . (R(j) k_j) / sqrt(d)                              for i - j < w
                = (R(floor(i / G) + w - w / G) q_i) . (R(floor(j / G)) k_j) / sqrt(d)   otherwise

Distances below w are exact. Longer distances become about w + (i - j - w) / G, so that in sequences
of up to about G (L - w) + w tokens no distance exceeds the training length L. The encoding can be
applied to a trained RoPE model without fine-tuning. i and j count from the first position of the
sequence. As in datamllab/LongLM (self_extend_patch/Llama.py), w / G is not rounded; the paper's
pseudocode and the repository's generation code round it down. The paper uses w = 1024 and G = 8 for
L = 4096. For the repository's log-n scaling, wrap this in log_n. q, k [B, H, T, d]; pos [T].
"""

from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.rotation_ranges import default_window, require_rope, rotate_at
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class SelfExtend(Wrapper):
    """RoPE whose positions are divided by `group_size` at distances of at least `window_size`.

    `window_size` is a quarter of the training length by default.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        group_size: int = 8,
        window_size: int | None = None,
    ) -> None:
        super().__init__(geometry, inner)
        require_rope(self.inner)
        self.group_size = group_size
        self.window_size = default_window(geometry) if window_size is None else window_size
        if group_size < 1 or self.window_size < 1:
            raise ValueError(
                f"group_size={group_size} and window_size={self.window_size} must be at least 1"
            )

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        relative = require_1d_positions(pos, "self_extend") - pos[:1]
        group = (relative // self.group_size).double()
        shift = self.window_size - self.window_size / self.group_size
        return rotate_at(self.active, x, q, k, (pos, pos), (group + shift, group))

    def rotation_index(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return (pos_q - pos_k >= self.window_size).long()
