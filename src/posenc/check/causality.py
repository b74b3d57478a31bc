"""Verifies on short inputs that outputs do not depend on later tokens or on how many there are."""

import copy
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from posenc.attention import reference
from posenc.attention.reference import AttentionInputs, bias_arguments
from posenc.check.encoding_under_test import (
    SEED,
    max_difference,
    perturb_zero_parameters,
)
from posenc.check.hook_calls import distinct_layers, float32_inputs, random_inputs
from posenc.check.hook_definitions import call_hook, hook_error, is_builtin, user_encodings_and_self
from posenc.check.hook_values import LONGER_LENGTH, TINY_LENGTH, supported_length
from posenc.config.user_code import definition_location
from posenc.encodings.base import Encoding
from posenc.model.transformer import restored_random_state, seed_cpu

SUFFIX_LENGTH = 3
"""The number of later tokens, at the end of the input, that are replaced or removed."""
TOLERANCE = 1e-4  # in float32
PROBLEMS = {
    "causal": "lets tokens depend on later ones, which the model is trained to predict",
    "prefix_consistent": "lets tokens depend on how many tokens follow",
}


def verify_causality(encoding: Encoding) -> None:
    """Raise ConfigError if a prefix's outputs depend on later tokens or on how many there are.

    The user's encodings inside a composite encoding are verified first, so that the message names
    them. User-defined encodings are also verified on longer inputs. Properties that an encoding
    declares in `limitations` are not verified.
    """
    for part in user_encodings_and_self(encoding):
        longer = () if is_builtin(type(part)) else (LONGER_LENGTH,)
        lengths = (TINY_LENGTH, *longer)
        for name, problem in PROBLEMS.items():
            if name in part.limitations:
                continue
            hooks = (leaking_hook(part, name, length) for length in lengths)
            if hook := next(filter(None, hooks), None):
                remedy = f"if that is intended, give the reason in limitations[{name!r}]"
                raise hook_error(part, hook, f"{problem}; {remedy}")


def dependence_location(encoding: Encoding, name: str) -> str:
    """Return text such as ` through Shift.rotate (mine.py, line 7)`, or "" if no hook is found."""
    hook = leaking_hook(encoding, name)
    if hook is None:
        return ""
    location = definition_location(getattr(type(encoding), hook))
    return f" through {type(encoding).__name__}.{hook} ({location})"


@torch.no_grad()
def leaking_hook(encoding: Encoding, name: str, length: int = TINY_LENGTH) -> str | None:
    """Return the hook through which a prefix depends on later tokens, or None.

    For `causal`, later tokens are replaced; for `prefix_consistent`, they are removed. The
    input has `length` tokens, or as many as the encoding supports.
    """
    tested = copy.deepcopy(encoding).float().eval()
    perturb_zero_parameters(tested)
    call_hook(tested, "set_training_progress", 0.0)
    length = supported_length(tested, length)
    prefix_length = max(1, length - SUFFIX_LENGTH)
    with restored_random_state():
        inputs = float32_inputs(tested, length)
        if name == "causal":
            others = float32_inputs(tested, length, seed=SEED + 1)
            x, q, k, v = map(partial(_replace_suffix, prefix_length), inputs[:4], others)
            changed = AttentionInputs(x, q, k, v, inputs.pos)
        else:
            prefix_inputs = random_inputs(tested, prefix_length)
            x, q, k, v = (tensor[..., :prefix_length, :] for tensor in inputs[:4])
            changed = AttentionInputs(x, q, k, v, prefix_inputs.pos)
        for layer in distinct_layers(tested):
            before = layer_outputs(tested, layer, inputs, prefix_length)
            after = layer_outputs(tested, layer, changed, prefix_length)
            if hook := first_differing_hook(before, after):
                if hook != "attention":
                    return hook
                return _attention_hook(tested.at_layer(layer), name, length, prefix_length)
    return None


def _attention_hook(layer_encoding: Encoding, name: str, length: int, prefix_length: int) -> str:
    """Return the hook through which a prefix depends on later tokens or on how many there are.

    The hooks in `layer_outputs` are ruled out, because only the output of attention differs.
    """
    scores = torch.zeros(1, layer_encoding.geometry.heads, length, length)
    scores.masked_fill_(torch.ones(length, length).triu(1).bool(), -torch.inf)
    weights = layer_encoding.normalize(scores)[:, :, :prefix_length]
    prefix_weights = layer_encoding.normalize(scores[:, :, :prefix_length, :prefix_length])
    attends_later = weights[..., prefix_length:].abs().max() > TOLERANCE
    depends_on_length = _differ(weights[..., :prefix_length], prefix_weights)
    if attends_later if name == "causal" else depends_on_length:
        return "normalize"
    return attention_hook_name(layer_encoding)


def attention_hook_name(layer_encoding: Encoding) -> str:
    """Return the first overridden hook that acts on attention, but is not in `layer_outputs`.

    Returns `window` if the layer overrides none.
    """
    hooks = ("value_bias", "rotation_index", "mask", "window", "normalize", "sink")
    return next((hook for hook in hooks if layer_encoding.overrides(hook)), "window")


def layer_outputs(
    encoding: Encoding,
    layer: int,
    inputs: AttentionInputs,
    prefix_length: int | None = None,
    seed: int = SEED,
) -> dict[str, Tensor | None]:
    """Return what each hook contributes to the prefix, in the order of the hooks.

    `attention` is the output of the layer's attention. By default, the prefix is the whole input.
    """
    seed_cpu(seed)
    x, q, k, v, pos = inputs
    outputs: dict[str, Tensor | None] = {"embed": encoding.embed(x, pos)[:, :prefix_length]}
    layer_encoding, tokens = encoding.at_layer(layer), slice(0, q.shape[2])
    q, k = layer_encoding.rotate(x, q, k, pos)
    outputs["rotate"] = torch.cat([q, k], dim=1)[:, :, :prefix_length]
    arguments = bias_arguments(q.shape[1], pos, tokens, tokens, q.dtype)
    biases = {
        "bias": layer_encoding.bias(*arguments),
        "content_bias": layer_encoding.content_bias(x, q, k, *arguments[1:]),
    }
    scores_shape = (*q.shape[:3], q.shape[2])
    for hook, bias in biases.items():
        outputs[hook] = (
            None if bias is None else bias.expand(scores_shape)[..., :prefix_length, :prefix_length]
        )
    attention = reference.attend(layer_encoding, x, q, k, v, pos)[:, :, :prefix_length]
    return {**outputs, "attention": attention}


def first_differing_hook(
    outputs: Mapping[str, Tensor | None], others: Mapping[str, Tensor | None]
) -> str | None:
    """Return the first hook whose `layer_outputs` differ, or None.

    A change in `rotate` or in a bias counts only if `attention` changes, too, because a constant
    added to all scores of a query has no effect.
    """
    different = [hook for hook in outputs if _differ(outputs[hook], others[hook])]
    return different[0] if "embed" in different or "attention" in different else None


def _replace_suffix(prefix_length: int, a: Tensor, b: Tensor) -> Tensor:
    """Return the prefix of a followed by the other tokens of b, both [..., T, channels]."""
    return torch.cat([a[..., :prefix_length, :], b[..., prefix_length:, :]], dim=-2)


def _differ(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is not b
    return max_difference(a, b) > TOLERANCE * max(1.0, a.abs().max().item())
