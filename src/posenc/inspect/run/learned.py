"""What training did to an encoding's own parameters."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.encodings.frequencies import SinusoidalFrequencies

WHOLE = 1024
"""A parameter of more numbers is told by the norms of its vectors, along the last axis."""


def learned(initial: Encoding, trained: Encoding, length: int) -> list[dict[str, Any]]:
    """A row for each number, or vector, of each parameter: before training and after.

    Trained frequencies, which are kept as offsets, are rows of their own, in radians per token in
    windows of `length`.
    """
    before = dict(_quantities(initial, length))
    return [
        {
            "parameter": name,
            "index": ",".join(str(i.item()) for i in index),
            "quantity": quantity,
            "initial": float(before[name, quantity][tuple(index)]),
            "trained": float(values[tuple(index)]),
        }
        for (name, quantity), values in _quantities(trained, length)
        for index in torch.ones_like(values).nonzero()
    ]


def _quantities(encoding: Encoding, length: int) -> Iterator[tuple[tuple[str, str], Tensor]]:
    for name, parameter in encoding.named_parameters():
        values = parameter.detach().double().cpu()
        if values.numel() > WHOLE and values.ndim > 1:
            yield (name, "norm"), values.norm(dim=-1)
        else:
            yield (name, "value"), values
    for name, module in encoding.named_modules():
        if isinstance(module, SinusoidalFrequencies) and module.offset is not None:
            frequencies, _ = module.frequencies(1, length, torch.device("cpu"))
            yield (f"{name}.frequencies", "radians per token"), frequencies[0].detach().cpu()
