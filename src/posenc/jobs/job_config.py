"""One job's configuration: composed, resolved, and its settings checked."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from posenc.config.components import user_modules
from posenc.config.errors import ConfigError
from posenc.config.paths import options
from posenc.config.resolve import compose_resolved
from posenc.config.settings import check_settings
from posenc.report.claim_parser import check_claims
from posenc.report.published_curves import parse_published

COMPONENTS = {
    "data": 0,
    "tokenizer": 0,
    "model": 3,
    "encoding": 1,
    "optimizer": 0,
    "schedule": 0,
    "logger": 0,
}
"""Config group -> the number of positional arguments that its target is called with."""

SWEEP_ONLY = ("grids", "sizes", "retry")


def compose_job(
    overrides: Sequence[str], config_dirs: Sequence[Path], known: DictConfig | None = None
) -> DictConfig:
    """Compose one job of `posenc train`; the result is complete, resolved and checked.

    `known` is the composition without overrides, if the caller has it. Components are not built:
    `validate` does that. Raises ConfigError.
    """
    values = compose_resolved("train", overrides, config_dirs, known)
    for group in COMPONENTS:
        if group not in values["choices"]:
            available = ", ".join(options(group, config_dirs))
            raise ConfigError(f"{group} is missing; give {group}= one of {available}")
    config = OmegaConf.create({k: v for k, v in values.items() if k not in SWEEP_ONLY})
    check_settings(config)
    check_claims(values["claims"], list(config_dirs))
    parse_published(values["published"])
    config.modules = sorted({*config.modules, *user_modules(values)})
    return config
