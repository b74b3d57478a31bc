"""Two encodings in turn over the layers (RNoPE: Yang et al. 2025, 2501.18795, section 3).

Layer i (from 0) has `second` where i + 1 is a multiple of `every`, and `first` elsewhere.
"""

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import Inner, inside_layers


class Interleave(Encoding):
    """One encoding in most layers, another in the last of every few."""

    def __init__(self, geometry: Geometry, *, first: Inner, second: Inner, every: int = 2) -> None:
        super().__init__(geometry)
        if not 2 <= every <= geometry.layers:
            few = geometry.layers < 2
            raise ValueError(
                f"every={every} of {geometry.layers} layers would leave one of the two encodings"
                f" without a layer; give {'' if few else f'2 to {geometry.layers}, or '}more layers"
            )
        self.every = every
        self.first, self.second = (
            inside_layers(make(geometry), "it cannot vary by layer") for make in (first, second)
        )
        self.limitations = {**self.first.limitations, **self.second.limitations}

    def at_layer(self, index: int) -> Encoding:
        inner = self.first if (index + 1) % self.every else self.second
        return inner.at_layer(index)

    def max_length(self) -> int | None:
        limits = [inner.max_length() for inner in (self.first, self.second)]
        return min((limit for limit in limits if limit is not None), default=None)

    def set_training_progress(self, fraction: float) -> None:
        for inner in (self.first, self.second):
            inner.set_training_progress(fraction)
