"""Types, choices and limits of the settings outside components, and the evaluation lengths."""

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.values import canonical, matches_type

PRECISIONS = ("float32", "bf16")
KERNELS = ("auto", "reference", "causal", "toeplitz", "factored", "blocks", "flex")
SPLITS = ("train", "validation", "test")
NAME_PATTERN = re.compile(r"\w[\w.+-]*")
DEFAULT_FACTORS = [1, 2, 4]

TYPES: dict[str, Any] = {
    "name": str,
    "train_length": int,
    "tokens": int,
    "batch_tokens": int,
    "micro_batch_tokens": int | None,
    "seed": int,
    "trainer.accelerator": str,
    "precision": str,
    "kernel": str,
    "devices": int,
    "compile": bool,
    "gradient_clip": float | None,
    "validation.every_tokens": int | None,
    "validation.tokens": int,
    "checkpoint.every_seconds": float,
    "about": dict | None,
    "outputs_dir": str,
    "cache_dir": str,
    "modules": list[str],
    "evaluation.lengths": list[int] | None,
    "evaluation.extra": list[int] | None,
    "evaluation.factors": list[float] | None,
    "evaluation.protocols": list[str],
    "evaluation.stride": int | None,
    "evaluation.k": int | None,
    "evaluation.targets": int | None,
    "evaluation.swap": dict | None,
    "evaluation.swaps": list[str] | dict | None,
    "evaluation.budget_seconds": float | None,
    "evaluation.budget_tokens": int | None,
    "evaluation.split": str,
    "evaluation.batch_tokens": int,
}
CHOICES = {
    "precision": PRECISIONS,
    "trainer.accelerator": ("auto", "cpu", "gpu"),
    "kernel": KERNELS,
    "evaluation.split": SPLITS,
}
POSITIVE = (
    "train_length",
    "tokens",
    "batch_tokens",
    "micro_batch_tokens",
    "devices",
    "gradient_clip",
    "validation.every_tokens",
    "validation.tokens",
    "evaluation.batch_tokens",
    "evaluation.stride",
    "evaluation.k",
    "evaluation.targets",
    "evaluation.budget_seconds",
    "evaluation.budget_tokens",
)


def check_settings(config: DictConfig, types: Mapping[str, Any] = TYPES) -> None:
    """Check that settings are present and have valid types, choices and limits.

    Raises a single ConfigError that lists every problem.
    """
    problems: list[str] = []
    for key, annotation in types.items():
        if not _is_present(config, key):
            problems.append(f"{key} is missing; give {key}=...")
            continue
        value = OmegaConf.select(config, key)
        plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        problems += _problems(key, canonical(plain), annotation)
    if problems:
        raise ConfigError("; ".join(problems))


def evaluation_lengths(config: DictConfig) -> list[int]:
    """Return the evaluation lengths in tokens, in increasing order and without duplicates.

    Raises ConfigError if there are none or one is less than 1.
    """
    evaluation, length = config.evaluation, config.train_length
    if evaluation.lengths is not None:
        lengths = list(evaluation.lengths)
    elif evaluation.extra is not None:
        lengths = [length + extra for extra in evaluation.extra]
    else:
        factors = DEFAULT_FACTORS if evaluation.factors is None else evaluation.factors
        lengths = [round(length * factor) for factor in factors]
    if not lengths or min(lengths) < 1:
        raise ConfigError(
            f"evaluation lengths {lengths}: give at least one length, each at least 1 token"
        )
    return sorted(set(lengths))


def _problems(key: str, value: Any, annotation: Any) -> list[str]:
    if not matches_type(value, annotation):
        return [f"{key}={value!r} must be {_describe_type(annotation)}"]
    if key in CHOICES and value not in CHOICES[key]:
        return [f"{key}={value!r} must be one of {', '.join(CHOICES[key])}"]
    if key == "name" and not NAME_PATTERN.fullmatch(value):
        return [
            f"{key}={value!r} must be letters, digits and - _ . +, starting with a letter or digit"
        ]
    if key == "seed" and value < 0:
        return [f"{key}={value!r} must be at least 0"]
    if key in POSITIVE and value is not None and value <= 0:
        return [f"{key}={value!r} must be positive"]
    return []


def _describe_type(annotation: Any) -> str:
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    if annotation == dict | None:
        return "a mapping or null"
    if annotation in names:
        return names[annotation]
    text = str(annotation)
    for kind, plural in (("int", "integers"), ("float", "numbers"), ("str", "strings")):
        if f"list[{kind}]" in text:
            return f"a list of {plural}" + (" or null" if "None" in text else "")
    return f"{_describe_type(int if 'int' in text else float)} or null"


def _is_present(config: DictConfig, key: str) -> bool:
    parent, _, leaf = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    return isinstance(node, DictConfig) and leaf in node
