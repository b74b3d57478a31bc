"""Separate parameters in every layer, for an encoding that shares them across layers by definition.

Layer i uses the i-th of `layers` instances of the inner encoding; each instance draws its own
initial parameters. Encodings that are defined with separate parameters per layer do not need this.
"""

from dataclasses import replace

import torch
from torch import nn

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.wrapper import EncodingFactory, require_attention_only


class Untied(Encoding):
    """One instance of the inner encoding per layer, each built for a one-layer model."""

    def __init__(self, geometry: Geometry, *, inner: EncodingFactory) -> None:
        super().__init__(geometry)
        one_layer = replace(geometry, layers=1)
        self.instances = nn.ModuleList(
            require_attention_only(inner(one_layer), "its parameters cannot differ between layers")
            for _ in range(geometry.layers)
        )
        first = self.instance(0)
        self.limitations = first.limitations
        if _parameter_count(first) == 0:
            raise ValueError(
                f"inner={type(first).__name__} has no learnable parameters that could differ"
                f" between layers; choose another, such as t5, kerple_log or fire"
            )
        with torch.random.fork_rng(devices=[]):
            tied = inner(geometry)
        if _parameter_count(tied) == _parameter_count(self):
            reason = (
                "the model has only one layer"
                if geometry.layers == 1
                else f"inner={type(first).__name__} already has separate parameters in every layer"
            )
            raise ValueError(f"{reason}, so untied has no effect")

    def instance(self, index: int) -> Encoding:
        """Return the inner encoding of a layer."""
        encoding = self.instances[index]
        assert isinstance(encoding, Encoding)
        return encoding

    def at_layer(self, index: int) -> Encoding:
        return self.instance(index).at_layer(0)

    def max_length(self) -> int | None:
        return self.instance(0).max_length()

    def set_training_progress(self, fraction: float) -> None:
        for index in range(len(self.instances)):
            self.instance(index).set_training_progress(fraction)


def _parameter_count(encoding: Encoding) -> int:
    return sum(parameter.numel() for parameter in encoding.parameters())
