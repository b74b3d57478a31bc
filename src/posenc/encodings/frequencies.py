"""Cosines and sines of position times frequency, for one or more axes.

Every axis has a copy of a spectrum (SinusoidalFrequencies), or the frequencies of one spectrum are
divided among the axes (SectionedFrequencies, M-RoPE). Angles are computed in float64: in float32,
the error reaches about 5e-3 at position 100,000.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from posenc.encodings.coordinates import to_coordinates
from posenc.encodings.spectra import Spectrum

LENGTH_DEPENDENT_REASON = (
    "beyond the training length the frequencies depend on the length of the sequence"
)


class SinusoidalFrequencies(nn.Module):
    """The dim/2 frequencies of a spectrum, fixed or with a learnable offset.

    With `trainable`, a learnable offset that starts at zero is added to the frequencies, so that
    the initial frequencies are exact in any precision. `limitations` contains `prefix_consistent`
    if the frequencies or the attention factor depend on the length of the sequence.
    """

    def __init__(
        self, spectrum: Spectrum, dim: int, train_length: int, *, trainable: bool = False
    ) -> None:
        super().__init__()
        self.spectrum, self.dim, self.train_length = spectrum, dim, train_length
        (short, short_factor), (long, long_factor) = (
            spectrum(dim, train_length, length) for length in (train_length, 2 * train_length)
        )
        length_dependent = short_factor != long_factor or not torch.equal(short, long)
        self.limitations = (
            {"prefix_consistent": LENGTH_DEPENDENT_REASON} if length_dependent else {}
        )
        self.offset = nn.Parameter(torch.zeros(dim // 2)) if trainable else None

    def frequencies(self, axes: int, length: int, device: torch.device) -> tuple[Tensor, float]:
        """Return float64 frequencies [axes, dim/2/axes] and the attention factor.

        Every axis gets the spectrum for an equal part of the width. Raises ValueError if the width
        cannot be split into pairs for that many axes.
        """
        if self.dim % (2 * axes):
            raise ValueError(
                f"a width of {self.dim} cannot be split into pairs for {axes} axes; it must be a"
                f" multiple of {2 * axes}: change model.width or model.heads"
            )
        frequencies, attention_factor = self.spectrum(self.dim // axes, self.train_length, length)
        frequencies = frequencies.to(device).expand(axes, -1)
        if self.offset is not None:
            frequencies = frequencies + self.offset.to(device, torch.float64).view(axes, -1)
        return frequencies, attention_factor

    def angles(self, pos: Tensor) -> tuple[Tensor, float]:
        """Return angles in radians (float64) and the attention factor.

        Angles are [T, 1, dim/2] for positions [T] and [B, T, axes, dim/2/axes] for coordinates
        [B, T, axes].
        """
        coordinates = (pos[:, None] if pos.ndim == 1 else pos).to(torch.float64)
        length, axes = coordinates.shape[-2:]
        frequencies, attention_factor = self.frequencies(axes, length, pos.device)
        return coordinates[..., None] * frequencies, attention_factor

    def forward(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of the angles, times the attention factor, as `dtype`."""
        angles, attention_factor = self.angles(pos)
        cos, sin = attention_factor * angles.cos(), attention_factor * angles.sin()
        return cos.to(dtype), sin.to(dtype)


class SectionedFrequencies(SinusoidalFrequencies):
    """One spectrum whose dim/2 frequencies are divided among the axes (M-RoPE).

    This is the rotary embedding of Qwen2-VL (Wang et al. 2024, arXiv:2409.12191) and, with
    `interleave`, of Qwen3-VL. A text position is used on every axis.
    """

    def __init__(
        self,
        spectrum: Spectrum,
        dim: int,
        train_length: int,
        *,
        sections: Sequence[int],
        interleave: bool,
        trainable: bool = False,
    ) -> None:
        super().__init__(spectrum, dim, train_length, trainable=trainable)
        self.num_axes = len(sections)
        self.axis_of_pair = axes_of_pairs(dim // 2, sections, interleave=interleave)

    def angles(self, pos: Tensor) -> tuple[Tensor, float]:
        """Return angles as in `SinusoidalFrequencies`, but [B, T, 1, dim/2] for coordinates."""
        if pos.ndim == 1 or pos.shape[-1] == 1:
            return super().angles(pos)
        points = to_coordinates(self.num_axes, pos, "m_rope")
        frequencies, attention_factor = self.frequencies(1, points.shape[1], pos.device)
        angles = points[..., self.axis_of_pair.to(pos.device)] * frequencies
        return angles[:, :, None], attention_factor


def axes_of_pairs(num_pairs: int, sections: Sequence[int], *, interleave: bool) -> Tensor:
    """Return the axis of each pair, given the relative number of pairs of each axis.

    Each axis gets consecutive pairs. With `interleave`, an axis a > 0 with n pairs instead gets the
    pairs a, a + axes, .., a + (n - 1) axes, and axis 0 all others. Raises ValueError if the
    sections do not fit.
    """
    axes = len(sections)
    if axes < 1 or min(sections) < 1:
        raise ValueError(f"sections={list(sections)} must have a positive number for each axis")
    total = sum(sections)
    ends = [round(num_pairs * end / total) for end in accumulate(sections, initial=0)]
    counts = [stop - start for start, stop in pairwise(ends)]
    if min(counts) < 1:
        raise ValueError(
            f"sections={list(sections)} leave an axis without any of the {num_pairs} rotated pairs;"
            f" use wider heads or more even sections"
        )
    if not interleave:
        return torch.arange(axes).repeat_interleave(torch.tensor(counts))
    axis_of_pair = torch.zeros(num_pairs, dtype=torch.int64)
    for axis in range(1, axes):
        last = axis + axes * (counts[axis] - 1)
        if last >= num_pairs:
            raise ValueError(
                f"sections={list(sections)} cannot be interleaved: axis {axis} would need pair"
                f" {last}, but the last pair is {num_pairs - 1}; give axis {axis} at most"
                f" {(num_pairs - 1 - axis) // axes + 1} of the {num_pairs} pairs"
            )
        axis_of_pair[axis : last + 1 : axes] = axis
    return axis_of_pair
