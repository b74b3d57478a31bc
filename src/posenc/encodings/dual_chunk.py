"""Dual chunk attention: positions within chunks of tokens (An et al. 2024, arXiv:2402.17463).

    score(i, j) = mu^2 (R(a) q_i) . (R(j mod c) k_j) / sqrt(d),   c = chunk - local
    a = i mod c                      in the same chunk: the exact distance
        min((i mod c) + c, chunk)    in the previous chunk: exact for distances up to `local`
        min(2c - 1, chunk)           in older chunks
    mu = 1 + s ln(T / L)             1 up to the training length L, or with s = 0

No distance is larger than the chunk size. As in HKUNLP/ChunkLlama (chunkllama_attn_replace.py), the
defaults are chunk = 3L/4, local = L/8 and s = 0.05; the paper's results are without mu (s = 0). i
and j count from the first position of the sequence. The encoding can be applied to a trained RoPE
model without fine-tuning. q, k [B, H, T, d]; pos [T].
"""

import math

from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.drope import LENGTH_SCALING_REASON, length_temperature
from posenc.encodings.rotation_ranges import require_rope, rotate_at
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class DualChunk(Wrapper):
    """RoPE with positions within chunks; `scale` is s."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        chunk_size: int | None = None,
        local_size: int | None = None,
        scale: float = 0.05,
    ) -> None:
        super().__init__(geometry, inner)
        require_rope(self.inner)
        length = geometry.train_length
        self.chunk_size = max(1, length * 3 // 4) if chunk_size is None else chunk_size
        self.local_size = length // 8 if local_size is None else local_size
        if not 0 <= self.local_size < self.chunk_size:
            raise ValueError(
                f"local_size={self.local_size} must be non-negative and less than"
                f" chunk_size={self.chunk_size}"
            )
        if not 0 <= scale < math.inf:
            raise ValueError(f"scale={scale} must be non-negative and finite")
        self.scale = scale
        if scale:
            self.limitations = {**self.limitations, "prefix_consistent": LENGTH_SCALING_REASON}

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        chunk_len = self.chunk_size - self.local_size
        in_chunk = (require_1d_positions(pos, "dual_chunk") - pos[:1]) % chunk_len
        previous = (in_chunk + chunk_len).clamp(max=self.chunk_size)
        older = in_chunk * 0 + min(2 * chunk_len - 1, self.chunk_size)
        positions = ((in_chunk, in_chunk), (previous, in_chunk), (older, in_chunk))
        q, k = rotate_at(self.active, x, q, k, *positions)
        temperature = length_temperature(len(pos), self.geometry.train_length, self.scale)
        return q * temperature**2, k

    def rotation_index(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        chunk_len = self.chunk_size - self.local_size
        return (pos_q // chunk_len - pos_k // chunk_len).clamp(0, 2).long()
