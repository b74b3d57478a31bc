"""The settings that cross components: their types, their limits, and what follows from them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.numbers import canonical
from posenc.config.types import fits

PRECISIONS = ("float32", "bf16")
KERNELS = ("auto", "reference", "sdpa", "causal", "lines", "factored", "blocks", "flex")
SPLITS = ("train", "validation", "test")
NAME = re.compile(r"\w[\w.+-]*")
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


@dataclass(frozen=True)
class Steps:
    """How a token budget becomes optimizer steps, in sequences of L tokens.

    A step's `sequences` are shared out among the `devices`, `micro_sequences` at a time on each.
    """

    total: int
    sequences: int
    micro_sequences: int
    devices: int = 1

    @property
    def accumulate(self) -> int:
        """Forward passes of a device in a step."""
        return self.sequences // (self.micro_sequences * self.devices)


def check_settings(config: DictConfig, types: Mapping[str, Any] = TYPES) -> None:
    """Check that the cross-cutting settings are there, with their types, choices and limits.

    All complaints come in one ConfigError.
    """
    complaints: list[str] = []
    for key, annotation in types.items():
        if not _present(config, key):
            complaints.append(f"{key} is missing; give {key}=...")
            continue
        value = canonical(_plain(OmegaConf.select(config, key)))
        complaints += _complaints(key, value, annotation)
    if complaints:
        raise ConfigError("; ".join(complaints))


def evaluation_lengths(config: DictConfig) -> list[int]:
    """The absolute evaluation lengths in tokens, ascending, each once."""
    given = config.evaluation
    length = config.train_length
    if given.lengths is not None:
        lengths = list(given.lengths)
    elif given.extra is not None:
        lengths = [length + extra for extra in given.extra]
    else:
        factors = DEFAULT_FACTORS if given.factors is None else given.factors
        lengths = [round(length * factor) for factor in factors]
    if not lengths or min(lengths) < 1:
        raise ConfigError(
            f"evaluation lengths {lengths}: give at least one, each of 1 token or more"
        )
    return sorted(set(lengths))


def steps_of(
    config: DictConfig, *, devices: int | None = None, micro_batch_tokens: int | None = None
) -> Steps:
    """Optimizer steps of a token budget; ConfigError when the numbers do not divide.

    `devices` and `micro_batch_tokens` default to those of `config`.
    """
    sequences, micro_sequences = sequences_of(config, micro_batch_tokens)
    devices = devices or config.devices
    if sequences % devices:
        raise ConfigError(
            f"devices={devices} do not divide batch_tokens={config.batch_tokens}, which are"
            f" {sequences} windows of train_length={config.train_length}; give as many devices as"
            f" divide {sequences}"
        )
    share = sequences // devices
    micro_sequences = min(micro_sequences, share)
    if share % micro_sequences:
        raise ConfigError(
            f"micro_batch_tokens={config.micro_batch_tokens} does not divide the"
            f" {share * config.train_length} tokens of a step that each of devices={devices} has"
        )
    total = max(1, round(config.tokens / config.batch_tokens))
    return Steps(total, sequences, micro_sequences, devices)


def sequences_of(config: DictConfig, micro_batch_tokens: int | None = None) -> tuple[int, int]:
    """Windows of an optimizer step and of a forward pass; ConfigError when they do not divide."""
    length, batch = config.train_length, config.batch_tokens
    micro = micro_batch_tokens or config.micro_batch_tokens
    if batch % length:
        nearest = max(1, round(batch / length)) * length
        raise ConfigError(
            f"batch_tokens={batch} is not a multiple of train_length={length};"
            f" the nearest is {nearest}"
        )
    micro = micro or batch
    if micro % length or batch % micro:
        raise ConfigError(
            f"micro_batch_tokens={micro} must be a multiple of train_length={length}"
            f" and divide batch_tokens={batch}"
        )
    return batch // length, micro // length


def _complaints(key: str, value: Any, annotation: Any) -> list[str]:
    if not fits(value, annotation):
        return [f"{key}={value!r} must be {_in_words(annotation)}"]
    if key in CHOICES and value not in CHOICES[key]:
        return [f"{key}={value!r} must be one of {', '.join(CHOICES[key])}"]
    if key == "name" and not NAME.fullmatch(value):
        return [f"{key}={value!r} must be letters, digits, and - _ . + after the first"]
    if key == "seed" and value < 0:
        return [f"{key}={value!r} must be 0 or above"]
    if key in POSITIVE and value is not None and value <= 0:
        return [f"{key}={value!r} must be above 0"]
    return []


def _in_words(annotation: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if annotation == dict | None:
        return "a mapping of texts or null"
    if annotation in words:
        return words[annotation]
    text = str(annotation)
    for kind, word in (("int", "whole numbers"), ("float", "numbers"), ("str", "texts")):
        if f"list[{kind}]" in text:
            return f"a list of {word}" + (" or null" if "None" in text else "")
    return f"{_in_words(int if 'int' in text else float)} or null"


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _present(config: DictConfig, key: str) -> bool:
    parent, _, leaf = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    return isinstance(node, DictConfig) and leaf in node
