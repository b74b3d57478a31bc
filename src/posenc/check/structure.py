"""Properties of a YAML and of the shapes that its encoding gives."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from posenc.check.hooks import ROWS, Given, answers, given, layers
from posenc.check.subject import VOCABULARY, Subject, output, tokens
from posenc.check.verdict import Verdict, fails, holds
from posenc.encodings.base import Encoding

EXCEPTIONS = ("causal", "prefix", "shift", "extrapolates")
HOST_FACTS = {"width", "heads", "layers", "head_width", "train_length"}
LEAST_DESCRIPTION = 20


def builds(subject: Subject) -> Verdict:
    """it builds from its YAML"""
    encoding = subject.plain.encoding
    count = sum(parameter.numel() for parameter in encoding.parameters())
    layers = subject.config.model.layers
    return holds(f"{type(encoding).__name__}, {count} parameters in {layers} layers")


def describes_itself(subject: Subject) -> Verdict:
    """the YAML describes itself"""
    found = subject.description
    if len(found) < LEAST_DESCRIPTION:
        return fails(f"it begins with {found!r}; give it a first line '# What it does, and whose.'")
    return holds(found)


def holds_no_fact_of_the_host(subject: Subject) -> Verdict:
    """the YAML holds no fact of the host"""
    stray = sorted(HOST_FACTS & set(_keys(OmegaConf.to_container(subject.config.encoding))))
    if stray:
        return fails(f"{', '.join(stray)}: the encoding is told by its Geometry")
    return holds(f"none of {', '.join(sorted(HOST_FACTS))}")


def declares_with_reason(subject: Subject) -> Verdict:
    """limitations are known and have reasons"""
    declared = subject.plain.encoding.limitations
    unknown = sorted(set(declared) - set(EXCEPTIONS))
    bare = [name for name, reason in declared.items() if not reason]
    if unknown:
        return fails(f"{', '.join(unknown)} unknown; there are {', '.join(EXCEPTIONS)}")
    if bare:
        return fails(f"{', '.join(bare)} declared without a reason")
    return holds(", ".join(declared) or "it declares none")


def has_the_shapes(subject: Subject) -> Verdict:
    """shapes and dtypes are right"""
    for training in (False, True):
        logits = output(subject.plain, tokens(subject.length), training=training)
        if logits.shape != (2, subject.length, VOCABULARY) or logits.dtype != torch.float64:
            return fails(f"logits are {_form(logits)}")
    for encoding, stream, heads in (
        (subject.plain.encoding, torch.float64, torch.float64),
        (subject.encoding({}), torch.float32, torch.float32),
        (subject.encoding({}), torch.float32, torch.bfloat16),
    ):
        to = given(encoding, subject.length).to(stream, heads)
        for layer in layers(encoding):
            if wrong := next(_misshapen(encoding, layer, to), None):
                return fails("{} of layer {} gives {}, not {}".format(wrong[0], layer, *wrong[1:]))
    return holds(f"positions {list(to.pos.shape)}, in float64, float32 and bfloat16")


def _misshapen(encoding: Encoding, layer: int, to: Given) -> Iterator[tuple[str, str, str]]:
    """Hook, what it gives, and what it should give, where these differ."""
    if to.pos.ndim != 1 and (to.pos.ndim != 3 or to.pos.shape[:2] != to.x.shape[:2]):
        yield "positions", _form(to.pos), "[T] or [1, T, axes]"
    found = answers(encoding, layer, to)
    batch, heads, length, width = to.q.shape
    wide = torch.promote_types(to.q.dtype, torch.float32)
    wider = max(width, found["rotate"].shape[-1])
    wanted = {
        "embed": (to.x.shape, to.x.dtype),
        "rotate": ((batch, heads, length, wider), to.q.dtype),
        "rotate of keys": (found["rotate"].shape, to.q.dtype),
        "bias": ((batch, heads, ROWS, length), wide),
        "value_bias": ((batch, heads, ROWS, width), wide),
    }
    for name, tensor in found.items():
        shape, dtype = wanted[name]
        if tensor.shape != shape or tensor.dtype != dtype:
            yield name, _form(tensor), f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _keys(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        yield from node
        for child in node.values():
            yield from _keys(child)
