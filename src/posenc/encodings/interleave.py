"""Two encodings that alternate over the layers (RNoPE: Yang et al. 2025, 2501.18795, section 3).

Layer i (from 0) uses `second` if i + 1 is a multiple of `every`, and `first` otherwise.
"""

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import EncodingFactory, equals_nope, require_attention_only


class Interleave(Encoding):
    """Uses `second` in every `every`-th layer, and `first` in the others."""

    def __init__(
        self, geometry: Geometry, *, first: EncodingFactory, second: EncodingFactory, every: int = 2
    ) -> None:
        super().__init__(geometry)
        if not 2 <= every <= geometry.layers:
            remedy = "use more layers"
            if geometry.layers >= 2:
                remedy = f"choose 2 to {geometry.layers}, or {remedy}"
            raise ValueError(
                f"every={every} with layers={geometry.layers} leaves one of the two encodings"
                f" without a layer; {remedy}"
            )
        self.every = every
        self.first, self.second = (
            require_attention_only(inner(geometry), "it cannot differ between layers")
            for inner in (first, second)
        )
        if equals_nope(self.first) and equals_nope(self.second):
            raise ValueError(
                "neither first nor second encodes positions, so the parameter every has no effect"
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
