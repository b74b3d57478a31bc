"""Composition of job configurations, with their settings resolved and checked.

A job with `debug` settings is shortened, and its results are kept separate from real ones.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.component_types import trusted_modules
from posenc.config.compose import Composer
from posenc.config.errors import ConfigError
from posenc.config.paths import options
from posenc.config.resolve import compose_resolved
from posenc.config.settings import COMPONENTS, check_settings
from posenc.config.values import walk
from posenc.report.claim_parser import check_claims
from posenc.report.published_curves import parse_published

SEED_OVERRIDE = re.compile(r"seed=(0|[1-9]\d{0,17})")
"""An override that sets a valid seed."""

SWEEP_ONLY_KEYS = ("grids", "sizes", "retry", "reuse")


def compose_sweep_jobs(jobs: Iterable[Sequence[str]], composer: Composer) -> list[dict[str, Any]]:
    """Return the configurations of the jobs of a sweep as plain values; see `compose_job`.

    Of each group of jobs that differ only in their seed, the first two are composed. If their
    configurations are the same except for the seed, and no interpolation may refer to it, the
    remaining jobs share all other values with the first; otherwise, all of them are composed.
    """
    first_jobs: dict[tuple[str, ...], dict[str, Any]] = {}
    seed_independent: dict[tuple[str, ...], bool] = {}
    configs: list[dict[str, Any]] = []
    for overrides in jobs:
        seeds = [match for match in map(SEED_OVERRIDE.fullmatch, overrides) if match]
        others = tuple(override for override in overrides if not SEED_OVERRIDE.fullmatch(override))
        if seed_independent.get(others) and len(seeds) == 1:
            configs.append({**first_jobs[others], "seed": int(seeds[0][1])})
            continue
        values = _compose_values(overrides, composer)
        first = first_jobs.setdefault(others, values)
        if first is not values and others not in seed_independent:
            is_equal = {**first, "seed": None} == {**values, "seed": None}
            seed_independent[others] = is_equal and not _interpolates_seed(overrides, composer)
        configs.append(values)
    return configs


def _interpolates_seed(overrides: Sequence[str], composer: Composer) -> bool:
    """Whether an interpolation, such as `${rates[${seed}]}`, may refer to the seed."""
    config, _ = composer.compose(overrides)
    leaves = walk(OmegaConf.to_container(config, resolve=False))
    texts = [text for _, text in leaves if isinstance(text, str) and "${" in text]
    return any("seed" in text or text.count("${") > 1 for text in texts)


def compose_job(overrides: Sequence[str], composer: Composer) -> DictConfig:
    """Return the complete configuration of one job of `posenc train`, resolved and checked.

    The jobs of a sweep share a `composer`. Components are not built here, but by `validate`. Raises
    ConfigError if the configuration is invalid.
    """
    return OmegaConf.create(_compose_values(overrides, composer))


def _compose_values(overrides: Sequence[str], composer: Composer) -> dict[str, Any]:
    """Return the configuration of `compose_job` as plain values."""
    values = compose_resolved(composer, overrides)
    for group in COMPONENTS:
        if group not in values["choices"]:
            available = ", ".join(options(group, composer.config_dirs))
            raise ConfigError(f"{group} is missing; set {group}= to one of: {available}")
    check_settings(values)
    apply_debug(values)
    for key in ("premises", "claims"):
        check_claims(values[key], composer.config_dirs, key)
    parse_published(values["published"])
    job_values = {key: item for key, item in values.items() if key not in SWEEP_ONLY_KEYS}
    return {**job_values, "modules": trusted_modules(values)}


def apply_debug(values: dict[str, Any]) -> None:
    """Shorten a job, whose settings have been checked, according to its `debug` settings.

    The description (`about`), premises, claims and published curves of its experiment are dropped.
    `evaluation.targets` is reduced to at most `train_length`, because `debug.overrides`, which
    `expand_config` has already applied, may shorten the windows. Raises ConfigError for a fraction
    outside (0, 1].
    """
    debug = values.get("debug")
    if debug is None:
        return
    values.update(dict.fromkeys(("about", "premises", "claims", "published")))
    if debug["fraction"] is not None:
        if not 0 < debug["fraction"] <= 1:
            raise ConfigError(f"debug.fraction={debug['fraction']} must be above 0 and at most 1")
        validation = values["validation"]
        for node, key in (values, "tokens"), (validation, "every_tokens"), (validation, "tokens"):
            if node[key] is not None:
                node[key] = max(1, round(node[key] * debug["fraction"]))
    if debug["steps"] is not None:
        values["tokens"] = debug["steps"] * values["batch_tokens"]
    if targets := values["evaluation"]["targets"]:
        values["evaluation"]["targets"] = min(targets, values["train_length"])
