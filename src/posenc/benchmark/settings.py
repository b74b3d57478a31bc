"""The settings of a benchmark: some are a run's too, some its own. Imports no torch."""

from typing import Any

from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.config.settings import TYPES, check_settings

PASSES = ("forward", "step")
SHARED = (
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
OWN: dict[str, Any] = {
    "passes": list[str],
    "vocab_size": int,
    "threads": int | None,
    "rounds": int,
    "published_costs": dict | None,
}


def check(config: DictConfig) -> None:
    """ConfigError for a setting that is missing, of a wrong type or past its limit."""
    check_settings(config, {**{key: TYPES[key] for key in SHARED}, **OWN})
    for key in ("vocab_size", "threads", "rounds"):
        if config[key] is not None and config[key] < 1:
            raise ConfigError(f"{key}={config[key]} must be 1 or more")
    if not config.passes or not set(config.passes) <= set(PASSES):
        there = "[" + ",".join(PASSES) + "]"
        raise ConfigError(f"passes={list(config.passes)}: give passes={there} or one of the two")
