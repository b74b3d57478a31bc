"""What a spectrum is.

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

from collections.abc import Callable

from torch import Tensor

Frequencies = tuple[Tensor, float]
Spectrum = Callable[[int, int, int], Frequencies]
