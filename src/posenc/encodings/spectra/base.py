"""What a spectrum is."""

from collections.abc import Callable

from torch import Tensor

Frequencies = tuple[Tensor, float]
Spectrum = Callable[[int, int, int], Frequencies]
