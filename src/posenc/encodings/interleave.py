"""Two encodings in alternating layers (RNoPE: Yang et al. 2025, arXiv:2501.18795, section 3).

A pattern such as SSSL is repeated over the layers: S layers (short range) use `first`, L layers
(long range) use `second`. `every: n` stands for the pattern of n - 1 S layers and one L layer; 2 is
the default. `last` overrides the letter of the last layer, which is always L in Gemma 4.
"""

from collections.abc import Sequence
from typing import Literal

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import EncodingFactory, equals_nope, require_attention_only


class Interleave(Encoding):
    """Uses `first` in the S layers of a pattern, and `second` in its L layers."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        first: EncodingFactory,
        second: EncodingFactory,
        every: int | None = None,
        pattern: str | Sequence[str] | None = None,
        last: Literal["S", "L"] | None = None,
    ) -> None:
        super().__init__(geometry)
        if pattern is None:
            every = 2 if every is None else every
            if every < 2:
                raise ValueError(f"every={every} must be at least 2")
            setting, pattern = f"every={every}", "S" * min(every - 1, geometry.layers) + "L"
        elif every is not None:
            raise ValueError(f"every={every} and pattern are mutually exclusive; set one of them")
        else:
            pattern = "".join(pattern)
            setting = f"pattern={pattern}"
        self.letters = layer_letters(geometry.layers, pattern, last, setting)
        self.first, self.second = (
            require_attention_only(inner(geometry), "it cannot differ between layers")
            for inner in (first, second)
        )
        if equals_nope(self.first) and equals_nope(self.second):
            raise ValueError(
                "neither first nor second encodes positions, so the choice of layers has no effect;"
                " choose another encoding for one of them, such as rope"
            )
        self.limitations = {**self.first.limitations, **self.second.limitations}

    def at_layer(self, index: int) -> Encoding:
        inner = self.first if self.letters[index] == "S" else self.second
        return inner.at_layer(index)

    def max_length(self) -> int | None:
        limits = [inner.max_length() for inner in (self.first, self.second)]
        return min((limit for limit in limits if limit is not None), default=None)

    def set_training_progress(self, fraction: float) -> None:
        for inner in (self.first, self.second):
            inner.set_training_progress(fraction)

    def overrides(self, hook: str) -> bool:
        return any(inner.overrides(hook) for inner in (self.first, self.second))


def layer_letters(layers: int, pattern: str, last: str | None, setting: str) -> str:
    """Return the letter of each layer, S or L.

    Raises ValueError if the pattern has other letters, or if all layers have the same one. The
    message includes `setting`, the option that defines the pattern.
    """
    if not pattern or not set(pattern + (last or "")) <= {"S", "L"}:
        raise ValueError(
            f"pattern={pattern} and last={last} must consist of the letters S and L, such as SSSL"
        )
    letters = "".join(pattern[index % len(pattern)] for index in range(layers))
    if last is not None:
        letters = letters[:-1] + last
    if len(set(letters)) == 1:
        raise ValueError(
            f"{setting} with last={last} and layers={layers} leaves one of the two encodings"
            f" without a layer; change one of them, or use more layers"
        )
    return letters
