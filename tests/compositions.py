"""Configurations and encodings for tests; Hydra composes each set of group choices once."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import Composer
from posenc.config.paths import conf_dir, options

FOUR_LAYERS = ("command_a", "llama4", "olmo3", "rnope_swa", "smollm3")
"""Encodings whose layer pattern needs at least four layers."""

ONE_PER_HOOKS = (
    *("alibi", "alibi_pi", "carope", "chunked", "command_a", "cope", "degree", "drope", "fire"),
    *("fox", "fox_fixed", "inkling", "learned", "lm_infinite", "nope", "path", "randomized"),
    *("rerope", "rope", "shaw", "sinks", "sinusoidal", "stick_breaking", "t5", "untied"),
    *("wavelet", "window", "xpos"),
)
"""One encoding for each combination of overridden hooks and automatically chosen kernel."""

ONE_PER_METHOD = (
    *("alibi", "cope", "fire", "fox", "learned", "nope", "rope", "shaw", "sinusoidal"),
    *("stick_breaking", "t5"),
)
"""One encoding for each way in which position enters, for tests that take seconds per encoding."""

OTHER_SETTINGS: dict[str, Any] = {
    "micro_batch_tokens": None,
    "devices": 1,
    "compile": False,
    "size": "laptop",
    "trainer": {"accelerator": "cpu", "strategy": "ddp"},
    "profiler": None,
    "validation": {"every_tokens": None, "tokens": 1},
    "checkpoint": {"every_seconds": 30},
    "about": None,
    "outputs_dir": "outputs",
    "cache_dir": "outputs/.data",
    "modules": [],
    "ngram_order": None,
    "evaluation": {
        **dict.fromkeys(("lengths", "offsets", "factors", "stride", "k", "targets", "swap")),
        **dict.fromkeys(("swaps", "budget_seconds", "budget_tokens")),
        "protocols": ["nonoverlapping"],
        "at_tokens": [],
        "split": "validation",
        "batch_tokens": 16384,
    },
}
"""Settings that the fabricated configurations in tests/report and tests/tracking share."""


def num_layers(encoding: str) -> int:
    """Return the number of layers of the smallest model that an encoding can be tested in."""
    return 4 if encoding in FOUR_LAYERS else 2


@cache
def composer() -> Composer:
    """Return the composer of `posenc train`, without a `--config-dir`."""
    return Composer("train")


def composed(*overrides: str) -> DictConfig:
    """Return the configuration of `posenc train` with `overrides`, unresolved."""
    return composer().compose(overrides)[0]


def encoding_params(fast: Sequence[str] = ONE_PER_HOOKS) -> list[Any]:
    """Return the names of all encodings as pytest parameters.

    The fast tests cover those in `fast`; the slow tests cover the others.
    """
    others = sorted({*options("encoding")} - {*fast})
    return [*fast, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


def one_per_class() -> list[str]:
    """Return one encoding per class, if possible the one named after the module of the class."""
    names: list[str] = []
    classes: set[str | None] = {None}
    targets = {
        name: OmegaConf.select(OmegaConf.load(conf_dir() / "encoding" / f"{name}.yaml"), "_target_")
        for name in options("encoding")
    }
    named_like_module = {name for name, target in targets.items() if f".{name}." in str(target)}
    for name in sorted(targets, key=lambda name: (name not in named_like_module, name)):
        if targets[name] not in classes:
            names.append(name)
        classes.add(targets[name])
    return names
