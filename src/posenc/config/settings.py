"""Types and limits of the settings, and the evaluation lengths.

Command lines and saved configurations are checked by the same two functions: `check_values` rejects
values that are invalid for every setting, and `check_settings` those of the wrong type or out of
range.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.errors import ConfigError, first_line
from posenc.config.values import (
    MAX_INTEGER,
    UNPRINTABLE,
    canonical,
    is_representable,
    matches_type,
    walk,
)

KERNELS = ("auto", "reference", "causal", "key_bias", "toeplitz", "factored", "blocks", "flex")
SPLITS = ("train", "validation", "test")
ABOUT_KEYS = ("title", "question", "interpretation", "limitations", "source")
"""The keys of an experiment's description, `about`; `source` cites published costs."""
COMPONENTS = ("data", "tokenizer", "model", "encoding", "optimizer", "schedule")
"""The config groups from which every run needs one component."""
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
    **dict.fromkeys((*COMPONENTS, "logger"), dict),
    "callbacks": dict[str, dict] | None,
    "profiler": dict | None,
    "trainer.accelerator": ("auto", "cpu", "gpu"),
    "trainer.strategy": ("ddp", "fsdp"),
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
    "debug": dict | None,
    "debug.steps": int | None,
    "debug.fraction": float | None,
    "debug.repeat_batch": bool,
    "debug.detect_anomaly": bool,
    "debug.overrides": list[str],
}
TOO_LARGE = f"={{}} must be at most {MAX_INTEGER:,}, because integers are stored in 64 bits"
OPTIONAL = ("callbacks", "debug")
"""Settings that may be absent or null; the keys inside them are checked only if they are set."""
TYPE_NAMES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    dict: "a mapping",
    dict[str, str]: "a mapping of names to strings",
    dict[str, dict]: "a mapping of names to mappings",
    dict[str, list[str]]: "a mapping of names to lists of strings",
    dict[str, str | list[str]]: "a mapping of names to strings or lists of strings",
    list[int]: "a list of integers",
    list[float]: "a list of numbers",
    list[str]: "a list of strings",
    type(None): "null",
}
NON_NEGATIVE = ("seed", "checkpoint.every_seconds")
"""Settings that must be non-negative; all other numbers must be positive."""

MAX_EVALUATION_LENGTH = 2**24
"""The largest evaluation length in tokens: eight times the 2048k of LongRoPE."""
LIMITS = {
    "train_length": (2**20, "because the cost of attention grows with the square of the length"),
    "batch_tokens": (2**28, "which is more than any published training run uses"),
    "vocab_size": (2**20, "which is more than any common tokenizer has"),
    "windows": (10_000, "because an average needs far fewer windows"),
    **dict.fromkeys(
        ("population", "parents", "mutations", "crossovers", "generations"),
        (10_000, "because the model is evaluated for each candidate"),
    ),
    "debug.steps": (1_000_000, "which is more than a debug run needs"),
    "threads": (2**10, "which is more cores than common machines have"),
}
"""Setting -> the largest number that is allowed, and the reason for the limit."""


def check_values(values: Any) -> None:
    """Check all values of a plain configuration, whose interpolations have been resolved.

    Raises ConfigError for a missing value (`???`), a number that is not finite or has more than 64
    bits, text that cannot be printed, a `_target_` that is neither a string nor null, a `_partial_`
    that is not a bool, and a mapping with both strings and numbers as keys, which cannot be sorted.
    """
    for key, value in [("", values), *walk(values)]:
        if problem := _value_problem(key, key.rpartition(".")[2], value):
            raise ConfigError(f"{key or 'the configuration'}{problem}")


def _value_problem(key: str, last: str, value: Any) -> str | None:
    """Return what is wrong with a value; `last` is the last part of its key."""
    if value == "???":
        return f" is missing; set {key}=..."
    if not is_representable(value):
        is_integer = type(value) is int
        return TOO_LARGE.format(value) if is_integer else f"={value} must be a finite number"
    if isinstance(value, str) and UNPRINTABLE.search(value):
        return f"={value!r} has characters that cannot be printed; remove them"
    if last == "_target_" and not isinstance(value, str | None):
        return f"={value!r} must be a string"
    if last == "_partial_" and not isinstance(value, bool):
        return f"={value!r} must be true or false"
    if isinstance(value, dict) and len({isinstance(name, str) for name in value}) > 1:
        return f"={value!r} has both strings and numbers as keys; use only one kind"
    return None


def check_settings(
    config: DictConfig | Mapping[str, Any], types: Mapping[str, Any] = TYPES
) -> None:
    """Check that settings are present, have valid types and are within their limits.

    `config` may be plain values without interpolations. `types` maps each setting to its type or to
    a tuple of its choices. Raises a single ConfigError that lists every problem.
    """
    problems: list[str] = []
    unset = [key for key in OPTIONAL if not isinstance(select(config, key), Mapping)]
    for key, annotation in types.items():
        value = select(config, key)
        if key.split(".")[0] in unset and (value is MISSING or "." in key):
            continue
        if problem := _problem(key, canonical(value), annotation):
            problems.append(problem)
    if problems:
        raise ConfigError("; ".join(problems))


def evaluation_lengths(config: DictConfig) -> list[int]:
    """Return the evaluation lengths in tokens, in increasing order and without duplicates.

    Raises ConfigError if there is no length, or if a length is not positive or is above
    MAX_EVALUATION_LENGTH.
    """
    evaluation, length = config.evaluation, config.train_length
    if evaluation.lengths is not None:
        lengths = list(evaluation.lengths)
    elif evaluation.offsets is not None:
        lengths = [length + offset for offset in evaluation.offsets]
    else:
        factors = DEFAULT_FACTORS if evaluation.factors is None else evaluation.factors
        lengths = [length * factor for factor in factors]
    if too_long := [value for value in lengths if not value < MAX_EVALUATION_LENGTH + 1]:
        raise ConfigError(
            f"evaluation length {too_long[0]:.6g} must be at most {MAX_EVALUATION_LENGTH:,} tokens,"
            f" because each window is evaluated in a single forward pass"
        )
    lengths = [round(value) for value in lengths]
    if not lengths or min(lengths) < 1:
        raise ConfigError(f"evaluation lengths {lengths}: set one or more positive lengths")
    return sorted(set(lengths))


def select(config: DictConfig | Mapping[str, Any], key: str) -> Any:
    """Return the plain value of a dotted key, or MISSING."""
    if isinstance(config, DictConfig):
        try:
            value = OmegaConf.select(config, key, default=MISSING)
            is_config = OmegaConf.is_config(value)
            return OmegaConf.to_container(value, resolve=True) if is_config else value
        except OmegaConfBaseException as error:
            raise ConfigError(f"{key}: {first_line(error)}") from None
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
    if type(value) is int and not is_representable(value):
        return f"{key}{TOO_LARGE.format(value)}"
    if not matches_type(value, annotation):
        types = [annotation] if annotation in TYPE_NAMES else get_args(annotation)
        expected = " or ".join(TYPE_NAMES[item] for item in types)
        has_commas = isinstance(value, str) and "," in value
        remedy = f"; in a YAML file, list several values under grids ({key}: [...])"
        return f"{key}={value!r} must be {expected}{remedy if has_commas else ''}"
    if key == "about" and (unknown := [name for name in value or {} if name not in ABOUT_KEYS]):
        return f"about has the unknown key {unknown[0]!r}; available: {', '.join(ABOUT_KEYS)}"
    if key == "name" and not NAME_PATTERN.fullmatch(value):
        return (
            f"{key}={value!r} must have at most 80 characters (letters, digits and - _ . +) and"
            f" start with a letter, a digit or _"
        )
    if isinstance(value, str) and not value.strip():
        return f"{key} must not be empty"
    if key in ("outputs_dir", "cache_dir") and value.startswith("~"):
        return f"{key}={value!r} would be a folder named ~; write the full path, or $HOME/..."
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    limit, reason = LIMITS.get(key, (math.inf, ""))
    if is_number and value > limit:
        return f"{key}={value!r} must be at most {limit:,}, {reason}"
    if is_number and key in NON_NEGATIVE and value < 0:
        return f"{key}={value!r} must be non-negative"
    if is_number and key not in NON_NEGATIVE and value <= 0:
        return f"{key}={value!r} must be positive"
    return None
