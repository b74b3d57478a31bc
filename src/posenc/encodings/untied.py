"""Weights of its own for an encoding in every layer, where its paper shares one set."""

from torch import nn

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import Inner, inside_layers


class Untied(Encoding):
    """One instance of the inner encoding for each layer, each with its own initial weights."""

    def __init__(self, geometry: Geometry, *, inner: Inner) -> None:
        super().__init__(geometry)
        self.levels = nn.ModuleList(
            inside_layers(inner(geometry), "its weights cannot differ by layer")
            for _ in range(geometry.layers)
        )
        self.exceptions = self.level(0).exceptions
        if not any(True for _ in self.parameters()):
            name = type(self.level(0)).__name__
            raise ValueError(f"{name} has no weights that could differ by layer")

    def level(self, index: int) -> Encoding:
        """The instance of a layer."""
        found = self.levels[index]
        assert isinstance(found, Encoding)
        return found

    def at_layer(self, index: int) -> Encoding:
        return self.level(index).at_layer(index)

    def max_length(self) -> int | None:
        return self.level(0).max_length()

    def progress(self, share: float) -> None:
        for index in range(len(self.levels)):
            self.level(index).progress(share)
