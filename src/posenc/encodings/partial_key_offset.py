"""Partial key offset (KellerJordan/modded-nanogpt, pull request 169, 2026).

k_j -> k_{j-1} in the channels that RoPE leaves unrotated; the first key keeps its own. In these
channels, a query is compared with the token before the one whose value it reads, so that one layer
is enough for induction. The repository applies the offset in the layers with a long window. Here it
applies in every layer; to limit it to some layers, use Interleave. q, k [B, H, T, d], in token
order.
"""

import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.rope import Layout, Rope, per_channel
from posenc.encodings.spectra import Spectrum


class PartialKeyOffset(Rope):
    """RoPE whose keys come from the previous token in all channels that are not rotated."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Layout = "half",
        rotary_fraction: float = 1.0,
    ) -> None:
        super().__init__(
            geometry, spectrum=spectrum, layout=layout, rotary_fraction=rotary_fraction
        )
        if not self.stationary_channels(1, geometry.train_length, torch.device("cpu")).any():
            raise ValueError(
                "the spectrum rotates every channel, so no key would be offset; choose a spectrum"
                " with frequencies of 0, such as half_truncated, or rotary_fraction below 1"
            )

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        axes = 1 if pos.ndim == 1 else pos.shape[-1]
        previous = torch.cat([k[:, :, :1], k[:, :, :-1]], dim=2)
        k = torch.where(self.stationary_channels(axes, k.shape[2], k.device), previous, k)
        return super().rotate(x, q, k, pos)

    def stationary_channels(self, axes: int, length: int, device: torch.device) -> Tensor:
        """Return which channels [d] of a head are not rotated."""
        frequencies, _ = self.sinusoids.frequencies(axes, length, device)
        rotated = per_channel(frequencies, self.layout).flatten() != 0
        num_unrotated = self.geometry.head_dim - self.rotary_dim
        return ~torch.cat([rotated, rotated.new_zeros(num_unrotated)])
