"""Properties of an encoding's YAML, and of the shapes of its hooks' outputs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from posenc.attention.reference import AttentionInputs
from posenc.check.hook_calls import (
    NUM_QUERIES,
    convert,
    distinct_layers,
    hook_outputs,
    random_inputs,
)
from posenc.check.under_test import (
    VOCAB_SIZE,
    EncodingUnderTest,
    Result,
    compute_logits,
    failed,
    passed,
    random_tokens,
)
from posenc.encodings.base import Encoding

LIMITATIONS = ("causal", "prefix", "shift", "extrapolates")
MODEL_HYPERPARAMETERS = {"width", "heads", "layers", "head_width", "train_length"}
MIN_DESCRIPTION_LENGTH = 20


def builds(under_test: EncodingUnderTest) -> Result:
    """the encoding can be built from its YAML"""
    encoding = under_test.configured_model.encoding
    num_parameters = sum(parameter.numel() for parameter in encoding.parameters())
    layers = under_test.config.model.layers
    return passed(f"{type(encoding).__name__}, {num_parameters} parameters in {layers} layers")


def has_description(under_test: EncodingUnderTest) -> Result:
    """the YAML has a description"""
    text = under_test.description
    if len(text) < MIN_DESCRIPTION_LENGTH:
        return failed(f"the first line is {text!r}; make it a comment that describes the encoding")
    return passed(text)


def omits_model_hyperparameters(under_test: EncodingUnderTest) -> Result:
    """the YAML repeats no model hyperparameter"""
    keys = sorted(
        MODEL_HYPERPARAMETERS & set(_keys(OmegaConf.to_container(under_test.config.encoding)))
    )
    if keys:
        return failed(f"{', '.join(keys)}: the encoding receives these in its Geometry")
    return passed(f"none of {', '.join(sorted(MODEL_HYPERPARAMETERS))}")


def declares_limitations(under_test: EncodingUnderTest) -> Result:
    """declared limitations are known and explained"""
    declared = under_test.configured_model.encoding.limitations
    unknown = sorted(set(declared) - set(LIMITATIONS))
    without_reason = [name for name, reason in declared.items() if not reason]
    if unknown:
        return failed(f"{', '.join(unknown)} unknown (available: {', '.join(LIMITATIONS)})")
    if without_reason:
        return failed(f"{', '.join(without_reason)} declared without a reason")
    return passed(", ".join(declared) or "none declared")


def shapes_are_correct(under_test: EncodingUnderTest) -> Result:
    """shapes and dtypes are correct"""
    for training in (False, True):
        model, tokens = under_test.configured_model, random_tokens(under_test.train_length)
        logits = compute_logits(model, tokens, training=training)
        if (
            logits.shape != (2, under_test.train_length, VOCAB_SIZE)
            or logits.dtype != torch.float64
        ):
            return failed(f"logits are {_dtype_and_shape(logits)}")
    for encoding, hidden_dtype, head_dtype in (
        (under_test.configured_model.encoding, torch.float64, torch.float64),
        (under_test.encoding({}), torch.float32, torch.float32),
        (under_test.encoding({}), torch.float32, torch.bfloat16),
    ):
        inputs = convert(random_inputs(encoding, under_test.train_length), hidden_dtype, head_dtype)
        for layer in distinct_layers(encoding):
            for hook, actual, expected in _wrong_shapes(encoding, layer, inputs):
                return failed(f"{hook} of layer {layer} returns {actual}, not {expected}")
    return passed(f"positions {list(inputs.pos.shape)}, in float64, float32 and bfloat16")


def _wrong_shapes(
    encoding: Encoding, layer: int, inputs: AttentionInputs
) -> Iterator[tuple[str, str, str]]:
    """Yield (hook, actual output, expected output) for each wrong shape or dtype."""
    pos, x = inputs.pos, inputs.x
    if pos.ndim != 1 and (pos.ndim != 3 or pos.shape[:2] != x.shape[:2]):
        yield "positions", _dtype_and_shape(pos), "[T] or [1, T, axes]"
    outputs = hook_outputs(encoding, layer, inputs)
    batch, heads, length, width = inputs.q.shape
    bias_dtype = torch.promote_types(inputs.q.dtype, torch.float32)
    rotated_width = max(width, outputs["rotate"].shape[-1])
    expected = {
        "embed": (x.shape, x.dtype),
        "rotate": ((batch, heads, length, rotated_width), inputs.q.dtype),
        "rotate (keys)": (outputs["rotate"].shape, inputs.q.dtype),
        "bias": ((batch, heads, NUM_QUERIES, length), bias_dtype),
        "value_bias": ((batch, heads, NUM_QUERIES, width), bias_dtype),
    }
    for hook, tensor in outputs.items():
        shape, dtype = expected[hook]
        if tensor.shape != shape or tensor.dtype != dtype:
            yield hook, _dtype_and_shape(tensor), _format(dtype, shape)


def _dtype_and_shape(tensor: Tensor) -> str:
    return _format(tensor.dtype, tensor.shape)


def _format(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def _keys(node: Any) -> Iterator[str]:
    """Yield the keys of nested mappings, at any depth."""
    if isinstance(node, Mapping):
        yield from node
        for child in node.values():
            yield from _keys(child)
