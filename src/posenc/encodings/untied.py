"""Weights of its own for an encoding in every layer, where its paper shares one set.

The hooks of layer i are those of the i-th of `layers` instances, each with its own initial
weights; which encodings differ by layer by definition is said in their files.
"""

from dataclasses import replace

from torch import nn

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import Inner, inside_layers


class Untied(Encoding):
    """One instance of the inner encoding for each layer, made for a model of that layer alone."""

    def __init__(self, geometry: Geometry, *, inner: Inner) -> None:
        super().__init__(geometry)
        one = replace(geometry, layers=1)
        self.levels = nn.ModuleList(
            inside_layers(inner(one), "its weights cannot differ by layer")
            for _ in range(geometry.layers)
        )
        self.limitations = self.level(0).limitations
        if not any(True for _ in self.parameters()):
            raise ValueError(
                f"inner={type(self.level(0)).__name__} has no weights that could differ by layer;"
                f" give one that has, such as t5, kerple_log or fire"
            )

    def level(self, index: int) -> Encoding:
        """The instance of a layer."""
        found = self.levels[index]
        assert isinstance(found, Encoding)
        return found

    def at_layer(self, index: int) -> Encoding:
        return self.level(index).at_layer(0)

    def max_length(self) -> int | None:
        return self.level(0).max_length()

    def set_training_progress(self, fraction: float) -> None:
        for index in range(len(self.levels)):
            self.level(index).set_training_progress(fraction)
