"""FoPE, Fourier position embedding (Hua et al. 2024, arXiv:2412.17739).

    q_m -> C(m) q_m + S(m) rotate_half(q_m), and likewise for k,
    C_c(m) = sum_p A_pc cos(m f_p),  S_c(m) = sum_p B_pc sin(m f_p)   for pairs c < n',
    C_c(m) = S_c(m) = 1                                               for the other pairs

From olmo/model.py of TsinghuaC3I/Fourier-Position-Embedding. f holds the n frequencies of RoPE that
complete a rotation within the training length (f >= 2 pi / L), and n' = min(n, d/4). Every layer
and head has its own A and B [n, n']. They are initialized by `xavier_normal_` on a tensor
[H, n, n'] (standard deviation gain sqrt(2 / (n' (n + H)))); then 1 is added to the entry in row
c * ceil(n/n') of each column c, if that row exists. They are fixed in the published runs, whose
gain grows with the model: 0.3 for 60M parameters, 0.4 for 180M and 0.6 for 1.2B. q, k [B, H, T, d];
pos [T].
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.rope import rotate_pairs
from posenc.encodings.spectra import hope


class Fope(PerLayer):
    """RoPE with mixed cosines and sines of the frequencies that complete a rotation within L."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        base: float = 10000.0,
        gain: float = 0.3,
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        width, length = geometry.head_dim, geometry.train_length
        if width % 2 or width < 4 or not 0 <= gain < math.inf:
            raise ValueError(
                f"the head dimension {width} must be even and at least 4, and gain={gain} must be"
                f" non-negative and finite"
            )
        spectrum, _ = hope(width, length, length, base=base)
        self.frequencies = spectrum[spectrum > 0]
        if not len(self.frequencies):
            raise ValueError(
                f"train_length={length} is less than 2 pi, so no frequency completes a rotation"
                f" within it; choose at least 7"
            )
        self.num_mixed_pairs = min(len(self.frequencies), width // 4)
        shape = geometry.layers, 2, geometry.heads, width // 2, width // 4
        mixing = torch.zeros(shape)  # the same shape for every training length
        for matrix in mixing.flatten(0, 1):
            self._initialize(matrix[:, : len(self.frequencies), : self.num_mixed_pairs], gain)
        self.mixing = nn.Parameter(mixing, requires_grad=trainable)
        if gain > 0 or trainable:
            self.limitations = {
                "shift_invariant": "cosines and sines are mixed by different matrices"
            }

    def _initialize(self, matrix: Tensor, gain: float) -> None:
        """Set the initial values [H, n, n'] of A or B in one layer."""
        nn.init.xavier_normal_(matrix, gain=gain)
        rows = torch.arange(0, len(matrix[0]), math.ceil(len(matrix[0]) / self.num_mixed_pairs))
        matrix[:, rows, torch.arange(len(rows))] += 1

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(q.dtype, torch.float32)
        cos, sin = (table.to(dtype)[None, :, :, None] for table in self.tables(pos))
        rotated_q, rotated_k = (rotate_pairs(part, cos, sin, "half") for part in (q, k))
        return rotated_q.to(q.dtype), rotated_k.to(k.dtype)

    def tables(self, pos: Tensor) -> Tensor:
        """Return C and S, [2, H, T, d/2], in float64."""
        pos = require_1d_positions(pos, "fope").double()
        angles = pos[:, None] * self.frequencies.to(pos.device)
        sinusoids = torch.stack([angles.cos(), angles.sin()])[:, None]  # [2, 1, T, n]
        mixing = self.mixing[self.layer, :, :, : len(self.frequencies), : self.num_mixed_pairs]
        num_unmixed_pairs = self.geometry.head_dim // 2 - self.num_mixed_pairs
        return pad(sinusoids @ mixing.double(), (0, num_unmixed_pairs), value=1.0)
