"""Calls an encoding's hooks on short inputs and verifies what they return."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from posenc.attention.reference import (
    AttentionInputs,
    bias_arguments,
    rotation_index_arguments,
    score_dtype,
)
from posenc.check.encoding_under_test import SEED
from posenc.check.hook_calls import (
    call_layer_hooks,
    convert,
    distinct_layers,
    float32_inputs,
    random_inputs,
)
from posenc.check.hook_definitions import (
    call_hook,
    encoding_error,
    hook_error,
    is_builtin,
    user_encodings,
    user_encodings_and_self,
)
from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding, layer_encodings
from posenc.encodings.wrapper import OUTPUT_HOOKS
from posenc.model.transformer import restored_random_state, seed_cpu

BATCH = 2
TINY_LENGTH, LONGER_LENGTH = 7, 67
NUM_ROWS = 3  # differs from TINY_LENGTH, so that queries and keys cannot be confused
Dtypes = tuple[torch.dtype, torch.dtype]
"""The dtype of the hidden states, and that of queries, keys and values."""
MAY_RETURN_NONE = ("bias", "content_bias", "value_bias", "window", "mask", "sink")
"""The hooks that return None if they do nothing, except `rotation_index`, which needs `rotate`."""
SHAPES = {
    "embed": "[B, T, D]",
    "rotate": "[B, H, T, d']",
    "rotation_index": "[R, K]",
    "bias": "[H, R, K]",
    "content_bias": "[B, H, R, K]",
    "normalize": "[B, H, R, K]",
    "value_bias": "[B, H, R, d]",
    "mask": "[R, K]",
    "sink": "[H]",
}
"""The shape of each hook's output, in the notation of `posenc.encodings.base`."""


@torch.no_grad()
def verify_values(encoding: Encoding, dtypes: Sequence[Dtypes]) -> None:
    """Raise ConfigError for the first hook that raises, or returns an invalid value.

    A valid value is finite and has the right shape, dtype and device. The encoding is tested with
    each of `dtypes`. User-defined encodings inside it are tested first and by themselves, so that
    the message names them. A user-defined encoding must also have an effect and finite gradients.
    """
    for part in user_encodings_and_self(encoding):
        with restored_random_state():
            for dtype_pair in dtypes:
                converted = copy.deepcopy(part).to(dtype_pair[0])
                for training in (False, True):
                    _verify_hooks(converted.train(training), dtype_pair)
            _verify_effect(part)
            _verify_gradients(part)


@torch.no_grad()
def verify_values_on_longer_input(encoding: Encoding, dtypes: Dtypes) -> None:
    """Like `verify_values`, but on LONGER_LENGTH tokens, and only for user-defined encodings."""
    for part in user_encodings(encoding):
        length, train_length = supported_length(part, LONGER_LENGTH), part.geometry.train_length
        try:
            with restored_random_state():
                _verify_hooks(copy.deepcopy(part).to(dtypes[0]).eval(), dtypes, length)
        except ConfigError as error:
            if length <= train_length:
                raise
            raise ConfigError(
                f"{error}. The input has {length} tokens, more than train_length={train_length}; if"
                f" the encoding cannot encode them, return its limit from max_length()"
            ) from error.__cause__


def _verify_effect(encoding: Encoding) -> None:
    """Raise ConfigError if every hook that a user's encoding overrides returns None."""
    layers = layer_encodings(encoding)
    overridden = [hook for hook in OUTPUT_HOOKS if any(e.overrides(hook) for e in layers)]
    may_have_no_effect = overridden and {*overridden} <= {*MAY_RETURN_NONE}
    if is_builtin(type(encoding)) or not may_have_no_effect:
        return
    inputs = float32_inputs(encoding, supported_length(encoding))
    index, encoding_copy = torch.arange(inputs.x.shape[1]), copy.deepcopy(encoding).float()
    for layer in distinct_layers(encoding_copy):
        layer_encoding = encoding_copy.at_layer(layer)
        mask = layer_encoding.mask(index[:, None], index[None])
        outputs = layer_encoding.window(), layer_encoding.sink(), mask
        if any(output is not None for output in outputs):
            return
        if {"bias", "value_bias"} & call_layer_hooks(encoding_copy, layer, inputs).keys():
            return
    problem = (
        "returns None, so the encoding acts like encoding=nope (is a return statement missing?)"
    )
    raise hook_error(encoding, overridden[0], problem)


@torch.enable_grad()
def _verify_gradients(encoding: Encoding) -> None:
    """Raise ConfigError if a parameter of a user's encoding has a gradient that is not finite."""
    encoding_copy = copy.deepcopy(encoding).float()
    parameters = dict(encoding_copy.named_parameters())
    if is_builtin(type(encoding)) or not parameters:
        return
    inputs = float32_inputs(encoding, supported_length(encoding))
    for layer in distinct_layers(encoding_copy):
        outputs = call_layer_hooks(encoding_copy, layer, inputs).values()
        if sums := [output.sum() for output in outputs if output.requires_grad]:
            torch.stack(sums).sum().backward()
    for name, parameter in parameters.items():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            raise encoding_error(
                encoding,
                f"the gradient of {name} is not finite, so training would fail (the derivative of"
                f" sqrt, for example, is infinite at 0)",
            )


def supported_length(encoding: Encoding, length: int = TINY_LENGTH) -> int:
    """Return `length`, or fewer tokens if the encoding does not support that many.

    At most four times the training length is used.
    """
    limit = call_hook(encoding, "max_length")
    return min(length, 4 * encoding.geometry.train_length, limit or length)


def _verify_hooks(encoding: Encoding, dtypes: Dtypes, length: int = TINY_LENGTH) -> None:
    """Verify the hooks that a model calls once, then those of every distinct layer.

    The input has `length` tokens, or as many as the encoding supports.
    """
    seed_cpu(SEED)
    call_hook(encoding, "set_training_progress", 0.0)
    for hook in ("max_length", "window"):
        limit = call_hook(encoding, hook)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise _output_error(encoding, hook, limit, "a positive integer or None")
    length = supported_length(encoding, length)
    pos = call_hook(encoding, "positions", length, torch.device("cpu"))
    token_axis = {1: 0, 3: 1}.get(pos.ndim) if isinstance(pos, Tensor) else None
    if token_axis is None or pos.shape[token_axis] != length:
        raise _output_error(
            encoding, "positions", pos, f"a tensor [{length}] or [1, {length}, axes]"
        )
    inputs = convert(random_inputs(encoding, length, batch=BATCH), *dtypes)
    x = inputs.x
    _verify_tensor(encoding, "embed", call_hook(encoding, "embed", x, pos), x.dtype, x.shape)
    for layer in distinct_layers(encoding):
        _verify_layer(encoding.at_layer(layer), inputs)


def _verify_layer(encoding: Encoding, inputs: AttentionInputs) -> None:
    x, q, k, _, pos = inputs
    batch, heads, length, width = q.shape
    rotated = call_hook(encoding, "rotate", x, q, k, pos)
    if not isinstance(rotated, tuple) or len(rotated) != 2:
        raise _output_error(encoding, "rotate", rotated, "two tensors: queries and keys")
    widths = [tensor.shape[-1] for tensor in rotated if isinstance(tensor, Tensor) and tensor.ndim]
    for tensor in rotated:
        shape = (batch, heads, length, max([width, *widths]))
        _verify_tensor(encoding, "rotate", tensor, q.dtype, shape)
    q, k = rotated
    rows, keys = slice(max(0, length - NUM_ROWS), length), slice(0, length)
    scores_shape = (batch, heads, rows.stop - rows.start, length)
    _verify_rotation_index(encoding, q.shape[-1], pos, rows, keys)
    _verify_mask_and_sink(encoding, rows, keys)
    dtype = score_dtype(q.dtype)
    head, distance, pos_q = bias_arguments(heads, pos, rows, keys, dtype)
    bias = call_hook(encoding, "bias", head, distance, pos_q)
    _verify_bias(encoding, bias, dtype, scores_shape)
    content_bias = call_hook(encoding, "content_bias", x, q[:, :, rows], k, distance, pos_q)
    if content_bias is not None:
        _verify_tensor(encoding, "content_bias", content_bias, dtype, scores_shape)
    weights = call_hook(encoding, "normalize", torch.zeros(scores_shape, dtype=dtype))
    _verify_tensor(encoding, "normalize", weights, dtype, scores_shape)
    value_bias = call_hook(encoding, "value_bias", weights, distance)
    if value_bias is not None:
        _verify_tensor(encoding, "value_bias", value_bias, dtype, (*scores_shape[:3], width))


def _verify_rotation_index(
    encoding: Encoding, width: int, pos: Tensor, rows: slice, keys: slice
) -> None:
    """Verify that rotation_index selects one of the width / head_dim rotations for each pair."""
    if not encoding.overrides("rotation_index"):
        return
    arguments = rotation_index_arguments(encoding, pos, rows, keys)
    index = call_hook(encoding, "rotation_index", *arguments)
    if index is None:
        return
    _verify_tensor(
        encoding, "rotation_index", index, torch.long, (rows.stop - rows.start, keys.stop)
    )
    head_dim = encoding.geometry.head_dim
    if width % head_dim or not ((index >= 0) & (index < width // head_dim)).all():
        expected = (
            f"indices from 0 to n-1, where n = {width} / {head_dim} is the width of the rotated"
            f" queries divided by that of the values"
        )
        raise _output_error(encoding, "rotation_index", index, expected)


def _verify_mask_and_sink(encoding: Encoding, rows: slice, keys: slice) -> None:
    query, key = torch.arange(rows.start, rows.stop)[:, None], torch.arange(keys.stop)[None]
    mask = call_hook(encoding, "mask", query, key)
    if mask is not None:
        _verify_tensor(encoding, "mask", mask, torch.bool, (len(query), keys.stop))
        if not mask[query == key].all():
            raise _output_error(encoding, "mask", mask, "True for every query's own key")
    lookback = call_hook(encoding, "content_lookback")
    if type(lookback) is not int or lookback < 0:
        raise _output_error(encoding, "content_lookback", lookback, "a non-negative integer")
    sink = call_hook(encoding, "sink")
    if sink is not None:
        dtype = sink.dtype if isinstance(sink, Tensor) and sink.is_floating_point() else None
        _verify_tensor(encoding, "sink", sink, dtype or torch.float32, (encoding.geometry.heads,))


def _verify_bias(encoding: Encoding, bias: Any, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """Verify a bias, which only has to broadcast to [B, H, R, K]."""
    if bias is None:
        return
    if not isinstance(bias, Tensor) or bias.dtype != dtype or not _broadcasts(bias, shape):
        expected = (
            f"{_dtype_name(dtype)} that broadcasts to {SHAPES['bias']} = {list(shape[1:])}, or None"
        )
        raise _output_error(encoding, "bias", bias, expected)
    _verify_device(encoding, "bias", bias)
    if not bias.isfinite().all():
        expected = "finite numbers, including at negative distances (keys after the query)"
        raise _output_error(encoding, "bias", bias, expected)


def _verify_tensor(
    encoding: Encoding, hook: str, output: Any, dtype: torch.dtype, shape: Sequence[int]
) -> None:
    if not isinstance(output, Tensor) or output.dtype != dtype or output.shape != tuple(shape):
        raise _output_error(
            encoding, hook, output, f"{_dtype_name(dtype)} {SHAPES[hook]} = {list(shape)}"
        )
    _verify_device(encoding, hook, output)
    if not output.isfinite().all():
        raise _output_error(encoding, hook, output, "finite numbers")


def _verify_device(encoding: Encoding, hook: str, output: Tensor) -> None:
    if output.device.type != "cpu":
        expected = "a tensor on the device of its arguments, here the CPU"
        raise _output_error(encoding, hook, output, expected)


def _broadcasts(tensor: Tensor, shape: Sequence[int]) -> bool:
    try:
        return torch.broadcast_shapes(tensor.shape, tuple(shape)) == tuple(shape)
    except RuntimeError:
        return False


def _output_error(encoding: Encoding, hook: str, output: Any, expected: str) -> ConfigError:
    actual = describe_value(output)
    return hook_error(encoding, hook, f"returned {actual}, but must return {expected}")


def describe_value(value: Any) -> str:
    """Describe a value: a tensor by its dtype, shape and, on a CPU, any NaN or infinity."""
    if isinstance(value, Tensor) and value.device.type != "cpu":
        return f"{_dtype_name(value.dtype)} {list(value.shape)} on device {value.device}"
    if not isinstance(value, Tensor):
        return "None" if value is None else f"{type(value).__name__} {value!r:.40}"
    text = f"{_dtype_name(value.dtype)} {list(value.shape)}"
    if value.is_floating_point() and not value.isfinite().all():
        text += " with NaN" if value.isnan().any() else " with infinity"
    return text


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
