"""Types and limits of the settings that are not components, and the evaluation lengths."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.values import canonical, matches_type

KERNELS = ("auto", "reference", "causal", "toeplitz", "factored", "blocks", "flex")
SPLITS = ("train", "validation", "test")
NAME_PATTERN = re.compile(r"\w[\w.+-]{,79}")
DEFAULT_FACTORS = [1, 2, 4]
MISSING: Any = object()
"""Marks a setting that the configuration does not have; null is a valid value."""

TYPES: dict[str, Any] = {
    "name": str,
    "train_length": int,
    "tokens": int,
    "batch_tokens": int,
    "micro_batch_tokens": int | None,
    "seed": int,
    "trainer.accelerator": ("auto", "cpu", "gpu"),
    "precision": ("float32", "bf16"),
    "kernel": KERNELS,
    "devices": int,
    "compile": ("auto", True, False),
    "gradient_clip": float | None,
    "validation.every_tokens": int | None,
    "validation.tokens": int,
    "checkpoint.every_seconds": float,
    "about": dict[str, str | list[str]] | None,
    "outputs_dir": str,
    "cache_dir": str,
    "modules": list[str],
    "evaluation.lengths": list[int] | None,
    "evaluation.offsets": list[int] | None,
    "evaluation.factors": list[float] | None,
    "evaluation.protocols": list[str],
    "evaluation.stride": int | None,
    "evaluation.k": int | None,
    "evaluation.targets": int | None,
    "evaluation.at_tokens": list[int],
    "evaluation.swap": dict | None,
    "evaluation.swaps": list[str] | dict | None,
    "evaluation.budget_seconds": float | None,
    "evaluation.budget_tokens": int | None,
    "evaluation.split": SPLITS,
    "evaluation.batch_tokens": int,
    "ngram_order": int | None,
}
TYPE_NAMES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    dict: "a mapping",
    dict[str, str | list[str]]: "a mapping of names to strings or lists of strings",
    list[int]: "a list of integers",
    list[float]: "a list of numbers",
    list[str]: "a list of strings",
    type(None): "null",
}
NON_NEGATIVE = ("seed", "checkpoint.every_seconds")
"""Settings that must be non-negative; all other numbers must be positive."""

LIMITS = {
    "train_length": (2**20, "because the cost of attention grows with the square of the length"),
    "batch_tokens": (2**28, "which is more than any published training run uses"),
    "vocab_size": (2**20, "which is more than any common tokenizer has"),
    "windows": (10_000, "because an average needs far fewer windows"),
    "seed": (2**63 - 1, "because PyTorch stores seeds in 64 bits"),
    "threads": (2**10, "which is more cores than common machines have"),
}
"""Setting -> the largest number that is allowed, and the reason for the limit."""


def check_settings(
    config: DictConfig | Mapping[str, Any], types: Mapping[str, Any] = TYPES
) -> None:
    """Check that settings are present, have valid types and are within their limits.

    `config` may be plain values without interpolations. `types` maps each setting to its type or to
    a tuple of its choices. Raises a single ConfigError that lists every problem.
    """
    problems: list[str] = []
    for key, annotation in types.items():
        value = _select(config, key)
        if problem := _problem(key, canonical(value), annotation):
            problems.append(problem)
    if problems:
        raise ConfigError("; ".join(problems))


def evaluation_lengths(config: DictConfig) -> list[int]:
    """Return the evaluation lengths in tokens, in increasing order and without duplicates.

    Raises ConfigError if there is no length, or if a length is not positive.
    """
    evaluation, length = config.evaluation, config.train_length
    if evaluation.lengths is not None:
        lengths = list(evaluation.lengths)
    elif evaluation.offsets is not None:
        lengths = [length + offset for offset in evaluation.offsets]
    else:
        factors = DEFAULT_FACTORS if evaluation.factors is None else evaluation.factors
        lengths = [round(length * factor) for factor in factors]
    if not lengths or min(lengths) < 1:
        raise ConfigError(f"evaluation lengths {lengths}: set one or more positive lengths")
    return sorted(set(lengths))


def _select(config: DictConfig | Mapping[str, Any], key: str) -> Any:
    """Return the plain value of a dotted key, or MISSING."""
    if isinstance(config, DictConfig):
        value = OmegaConf.select(config, key, default=MISSING)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return MISSING
        node = node[part]
    return node


def _problem(key: str, value: Any, annotation: Any) -> str | None:
    if value is MISSING:
        return f"{key} is missing; set {key}=..."
    if isinstance(annotation, tuple):
        if any(value == choice and type(value) is type(choice) for choice in annotation):
            return None
        choices = ", ".join(json.dumps(choice).strip('"') for choice in annotation)
        return f"{key}={value!r} must be one of {choices}"
    if not matches_type(value, annotation):
        types = [annotation] if annotation in TYPE_NAMES else get_args(annotation)
        expected = " or ".join(TYPE_NAMES[item] for item in types)
        is_list = isinstance(value, str) and "," in value
        remedy = f"; in a YAML file, list several values under grids ({key}: [...])"
        return f"{key}={value!r} must be {expected}{remedy if is_list else ''}"
    if key == "name" and not NAME_PATTERN.fullmatch(value):
        return (
            f"{key}={value!r} must be at most 80 letters, digits and - _ . +, starting with a"
            f" letter or digit"
        )
    if isinstance(value, str) and not value.strip():
        return f"{key} must not be empty"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    limit, reason = LIMITS.get(key, (math.inf, ""))
    if is_number and value > limit:
        return f"{key}={value!r} must be at most {limit:,}, {reason}"
    if is_number and key in NON_NEGATIVE and value < 0:
        return f"{key}={value!r} must be non-negative"
    if is_number and key not in NON_NEGATIVE and value <= 0:
        return f"{key}={value!r} must be positive"
    return None
