"""ReRoPE: RoPE with limited distances (Su 2023, kexue.fm/archives/9708).

    score(i, j) = tau_i (R(i) q_i) . (R(j) k_j) / sqrt(d)    for i - j < w
                = tau_i (R(w) q_i) . k_j / sqrt(d)           otherwise
    tau_i       = max(1, ln(i + 1) / ln L)                   1 with log_n=false

L is the training length; the formula and tau are those of bojone/rerope (rerope_patch.py), whose
results are for w = 1024 and L = 4096. i and j count from the first position of the sequence. The
encoding can be applied to a trained RoPE model without fine-tuning. q, k [B, H, T, d]; pos [T].
"""

from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.rotation_ranges import default_window, require_rope, rotate_near_and_far
from posenc.encodings.temperature import log_n_temperature
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class ReRope(Wrapper):
    """RoPE in which no distance is larger than `window_size`, by default a quarter of L."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        window_size: int | None = None,
        log_n: bool = True,
    ) -> None:
        super().__init__(geometry, inner)
        require_rope(self.inner)
        self.window_size = default_window(geometry) if window_size is None else window_size
        if self.window_size < 1:
            raise ValueError(f"window_size={window_size} must be at least 1 token")
        if log_n and geometry.train_length < 2:
            raise ValueError(
                f"train_length={geometry.train_length} must be at least 2 for log_n=true, because"
                f" its logarithm is a divisor; set log_n=false"
            )
        self.log_n = log_n

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        n = require_1d_positions(pos, "rerope").double() - pos[:1] + 1
        q, k = rotate_near_and_far(self.active, x, q, k, pos, self.window_size)
        if self.log_n:
            factors = log_n_temperature(n, self.geometry.train_length)
            q = (q * factors[:, None]).to(q.dtype)
        return q, k

    def rotation_index(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return (pos_q - pos_k >= self.window_size).long()
