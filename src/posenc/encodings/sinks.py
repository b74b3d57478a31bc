"""Attention sinks: a logit per head in the denominator of the softmax.

    weight(i, j) = exp(z_ij) / (exp(s_h) + sum_k exp(z_ik))

where z are the scores of the inner encoding. The weights of a query sum to less than 1, so that a
head can attend to almost nothing. In gpt-oss, s is learned per layer and head (OpenAI 2025,
arXiv:2508.10925; Hugging Face's modeling_gpt_oss.py, which initializes it from N(0, 0.02^2)). With
s fixed at 0, this is the softmax with 1 added to its denominator (Miller 2023,
evanmiller.org/attention-is-off-by-one.html).
"""

import math

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, layer_encodings
from posenc.encodings.wrapper import EncodingFactory, Wrapper


class Sinks(Wrapper):
    """Adds a sink to the inner encoding; its logits [layers, H] are initialized to `logit`."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        logit: float = 0.0,
        trainable: bool = True,
    ) -> None:
        super().__init__(geometry, inner)
        if not math.isfinite(logit):
            raise ValueError(f"logit={logit} must be finite")
        layers = layer_encodings(self.inner)
        for hook, reason in {"sink": "already has a sink", "normalize": "has no softmax"}.items():
            if any(layer.overrides(hook) for layer in layers):
                raise ValueError(
                    f"inner={type(self.inner).__name__} {reason}; choose another encoding"
                )
        logits = torch.full((geometry.layers, geometry.heads), float(logit))
        if trainable:
            self.logits = nn.Parameter(logits)
        else:
            self.register_buffer("logits", logits, persistent=False)

    def sink(self) -> Tensor:
        return self.logits[self.layer]
