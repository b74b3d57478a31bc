"""Validates the keys of conf/bench.yaml. This module does not import torch."""

from typing import Any

from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.config.settings import TYPES, check_settings

ATTENTION_PASSES = ("attention_forward", "attention_step")
PASS_TITLES = {
    "forward": "forward pass",
    "step": "training step",
    "attention_forward": "attention, forward",
    "attention_step": "attention, forward and backward",
}
PASSES = tuple(PASS_TITLES)
KEYS_SHARED_WITH_TRAINING = (
    "name",
    "train_length",
    "batch_tokens",
    "micro_batch_tokens",
    "trainer.accelerator",
    "precision",
    "kernel",
    "compile",
    "gradient_clip",
    "about",
    "outputs_dir",
    "modules",
)
BENCH_KEYS: dict[str, Any] = {
    "passes": list[str],
    "skip_unsupported": bool,
    "vocab_size": int,
    "threads": int | None,
    "rounds": int,
    "published_costs": dict | None,
}


def check_bench_settings(config: DictConfig) -> None:
    """Raise ConfigError if a key is missing, has the wrong type or is out of range."""
    check_settings(config, {**{key: TYPES[key] for key in KEYS_SHARED_WITH_TRAINING}, **BENCH_KEYS})
    passes = list(config.passes)
    if not passes or not set(passes) <= set(PASSES) or len(set(passes)) < len(passes):
        raise ConfigError(
            f"passes={passes} must list one or more of [{','.join(PASSES)}], without duplicates"
        )
