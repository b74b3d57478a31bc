"""Properties of an encoding's YAML, limitations and hooks, and of the shapes that hooks return."""

import torch
from omegaconf import OmegaConf

from posenc.check.encoding_under_test import (
    VOCAB_SIZE,
    EncodingUnderTest,
    Result,
    compute_logits,
    failed,
    hint,
    passed,
    random_tokens,
)
from posenc.check.hook_definitions import HOOKS, verify_definitions
from posenc.check.hook_values import describe_value, verify_values
from posenc.check.reproducibility import verify_evaluation, verify_saved_state
from posenc.config.errors import plural
from posenc.config.values import walk

LIMITATIONS = ("causal", "prefix_consistent", "shift_invariant", "any_length")
MODEL_HYPERPARAMETERS = {"width", "heads", "layers", "head_dim", "train_length"}
MIN_DESCRIPTION_LENGTH = 20
DTYPES = (
    (torch.float64, torch.float64),
    (torch.float32, torch.float32),
    (torch.float32, torch.bfloat16),
)
"""Dtypes of the hidden states, and of queries, keys and values."""


def builds(under_test: EncodingUnderTest) -> Result:
    """the encoding can be built from its YAML"""
    encoding = under_test.configured_model.encoding
    parameters = plural(sum(p.numel() for p in encoding.parameters()), "parameter")
    layers = plural(under_test.config.model.layers, "layer")
    return passed(f"{type(encoding).__name__}, {parameters} in a model of {layers}")


def has_description(under_test: EncodingUnderTest) -> Result:
    """the YAML has a description"""
    text = under_test.description
    if len(text) < MIN_DESCRIPTION_LENGTH:
        return hint(
            f"the comment at the top is {text!r}; describe the encoding in at least"
            f" {MIN_DESCRIPTION_LENGTH} characters"
        )
    return passed(text)


def omits_model_hyperparameters(under_test: EncodingUnderTest) -> Result:
    """the YAML sets no model hyperparameter"""
    settings = walk(OmegaConf.to_container(under_test.config.encoding))
    keys = sorted(MODEL_HYPERPARAMETERS & {path.rpartition(".")[2] for path, _ in settings})
    if keys:
        return hint(f"{', '.join(keys)}: the encoding receives these in its Geometry")
    return passed(f"none of {', '.join(sorted(MODEL_HYPERPARAMETERS))}")


def declares_limitations(under_test: EncodingUnderTest) -> Result:
    """declared limitations are known and explained"""
    declared = under_test.configured_model.encoding.limitations
    unknown = sorted(set(declared) - set(LIMITATIONS))
    without_reason = [name for name, reason in declared.items() if not reason]
    if unknown:
        return failed(f"unknown: {', '.join(unknown)} (available: {', '.join(LIMITATIONS)})")
    if without_reason:
        return failed(f"{', '.join(without_reason)} declared without a reason")
    return passed(", ".join(declared) or "none declared")


def hooks_are_valid(under_test: EncodingUnderTest) -> Result:
    """hooks have valid names and signatures"""
    encoding = under_test.configured_model.encoding
    verify_definitions(encoding)
    return passed(", ".join(hook for hook in HOOKS if encoding.overrides(hook)) or "none: NoPE")


def shapes_are_correct(under_test: EncodingUnderTest) -> Result:
    """shapes and dtypes are correct"""
    verify_values(under_test.build_encoding({}), DTYPES)
    for training in (False, True):
        model, tokens = under_test.configured_model, random_tokens(under_test.train_length)
        logits = compute_logits(model, tokens, training=training)
        if (
            logits.shape != (2, under_test.train_length, VOCAB_SIZE)
            or logits.dtype != torch.float64
        ):
            return failed(f"logits are {describe_value(logits)}")
    return passed("in float64, float32 and bfloat16, in evaluation and in training")


def is_reproducible(under_test: EncodingUnderTest) -> Result:
    """outputs depend only on inputs and saved state"""
    encoding = under_test.build_encoding({})
    verify_saved_state(encoding)
    verify_evaluation(encoding)
    return passed("independent of random numbers, other sequences and the number of queries")
