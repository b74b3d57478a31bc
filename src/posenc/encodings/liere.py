"""LieRE, for coordinates (Ostmeier et al. 2024, arXiv:2406.10322; StanfordMIMI/LieRE).

    q_i -> R(p_i) q_i,  k_j -> R(p_j) k_j,   R(p) = exp(sum_a p_a/E (U_a - U_a^T))

R rotates each block of b channels by a matrix exponential. U is strictly upper triangular, is
learned per layer, axis, head and block, and is initialized uniformly over [0, 2 pi]. The authors
scale the coordinates of a training image to [0, 1]; here, they are divided by the
`extent` E. Scores depend only on p_i - p_j if there is one axis, if b = 2, or if pos is [T];
otherwise, the matrices of the axes do not commute. q, k [B, H, T, d]; pos [B, T, axes], or [T],
which is used on every axis.
"""

import math

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.coordinates import to_coordinates


class LieRE(PerLayer):
    """Rotates blocks of channels by the exponential of a linear function of the coordinates.

    Channels beyond the last whole block are not rotated.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        axes: int = 2,
        block_size: int = 8,
        extent: float | None = None,
    ) -> None:
        super().__init__(geometry)
        self.axes, self.blocks = axes, count_blocks(geometry, axes, block_size)
        self.extent = checked_extent(geometry, extent)
        self.rows, self.columns = torch.triu_indices(block_size, block_size, 1).tolist()
        shape = (geometry.layers, axes, geometry.heads, self.blocks)
        entries = torch.rand(*shape, len(self.rows))
        self.upper = nn.Parameter(2 * math.pi * entries)  # the entries of U above its diagonal

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        points = to_coordinates(self.axes, pos, "liere") / self.extent
        generators = self.generators()
        if pos.ndim == 1 or pos.shape[-1] == 1:
            return rotate_blocks(q, k, scaled_matrix_exp(generators.sum(0), points[..., :1]))
        exponents = torch.einsum("bta,ahnij->bhtnij", points, generators)
        return rotate_blocks(q, k, torch.linalg.matrix_exp(exponents.contiguous()))

    def generators(self) -> Tensor:
        """Return U - U^T [axes, H, n, b, b] of this layer in float64."""
        upper = self.upper[self.layer].double()
        size = self.columns[-1] + 1
        matrices = upper.new_zeros(*upper.shape[:-1], size, size)
        matrices[..., self.rows, self.columns] = upper
        return matrices - matrices.mT


def scaled_matrix_exp(matrices: Tensor, scales: Tensor) -> Tensor:
    """Return exp(s A) [B, H, T, n, b, b] for skew-symmetric A [H, n, b, b] and s [B, T, n or 1].

    The eigenvectors are those of A for every s, so no matrix exponential per token is needed.
    """
    values, vectors = torch.linalg.eigh(1j * matrices)  # A = V diag(-i values) V^H
    projectors = torch.einsum("hnim,hnjm->hnmij", vectors, vectors.conj())
    angles = scales[:, None, :, :, None] * values[:, None]  # [B, H, T, n, b]
    cos, sin = (
        torch.einsum("bhtnm,hnmij->bhtnij", sinusoids, part)
        for sinusoids, part in ((angles.cos(), projectors.real), (angles.sin(), projectors.imag))
    )
    return cos + sin


def rotate_blocks(q: Tensor, k: Tensor, rotations: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate n blocks of b channels by matrices [B or 1, H, T, n, b, b]; keep other channels."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    rotations = rotations.to(dtype)
    width = rotations.shape[-3] * rotations.shape[-1]

    def rotate(x: Tensor) -> Tensor:
        parts = x[..., :width].unflatten(-1, rotations.shape[-3:-1]).to(dtype)
        rotated = torch.einsum("bhtnij,bhtnj->bhtni", rotations, parts).flatten(-2)
        return torch.cat([rotated.to(x.dtype), x[..., width:]], dim=-1)

    with torch.autocast(q.device.type, enabled=False):
        return rotate(q), rotate(k)


def count_blocks(geometry: Geometry, axes: int, block_size: int) -> int:
    """Return the number of blocks per head; raises ValueError for invalid sizes."""
    if axes < 1 or not 2 <= block_size <= geometry.head_dim:
        raise ValueError(
            f"axes={axes} must be at least 1, and block_size={block_size} must be from 2 to the"
            f" head dimension {geometry.head_dim}"
        )
    return geometry.head_dim // block_size


def checked_extent(geometry: Geometry, extent: float | None) -> float:
    """Return the extent, by default the training length; raises ValueError unless positive."""
    if extent is None:
        return geometry.train_length
    if not 0 < extent < math.inf:
        raise ValueError(f"extent={extent} must be positive and finite, or null for train_length")
    return extent
