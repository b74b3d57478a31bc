"""Expansion of an experiment's grids and a command line into the overrides of each job."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import LENGTH_KEYS, compose
from posenc.config.errors import ConfigError
from posenc.config.overrides import (
    Axis,
    check_job_count,
    command_line_axes,
    grid_axes,
    override_key,
    parse,
)
from posenc.config.settings import TYPES, check_settings
from posenc.config.swaps import merge_swap_choices

DEFAULT_SIZE = "laptop"
SWEEP_KEYS = (
    "experiment",
    "size",
    "debug",
    "grids",
    "sizes",
    "retry",
    "reuse",
    "name",
    "outputs_dir",
)
"""Keys that have a single value for the whole sweep."""

SWEEP_TYPES = {
    **{key: TYPES[key] for key in ("name", "outputs_dir")},
    "sizes": dict[str, list[str]] | None,
    "size": str,
    "retry": bool,
    "reuse": list[str],
    **{key: TYPES[key] for key in TYPES if key.split(".")[0] == "debug"},
}
"""The types of the settings that are read before the jobs are composed."""

Grids = Sequence[Mapping[str, Any]]


def compose_sweep(
    command: str, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> DictConfig:
    """Compose the settings that all jobs of a sweep share: experiment, size, folder, launcher.

    Raises ConfigError if one of them has the wrong type, or if a debug run is given a name, because
    its results could be mixed with real ones.
    """
    config = compose(command, sweep_overrides(overrides), config_dirs, with_hydra=True)
    check_settings(config, {k: t for k, t in SWEEP_TYPES.items() if k.split(".")[0] in config})
    if config.get("debug") and any(override_key(override) == "name" for override in overrides):
        raise ConfigError("name= cannot be combined with debug=; debug runs always have name=debug")
    return config


def sweep_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that apply to the whole sweep.

    Raises ConfigError if one of them has multiple values.
    """
    selected = [
        o for o in parse(overrides) if o.key_or_group in SWEEP_KEYS or o.is_hydra_override()
    ]
    for override in selected:
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: cannot be swept; set a single value")
    return [str(override.input_line) for override in selected]


def sweep_jobs(
    command: str, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> list[list[str]]:
    """Return the overrides of every job of `command` (a file in `conf/`) with `overrides`."""
    config = compose_sweep(command, overrides, config_dirs)
    return expand_config(config, overrides, config_dirs)


def expand_config(
    config: DictConfig, overrides: Sequence[str], config_dirs: Sequence[Path] = ()
) -> list[list[str]]:
    """Return the overrides of an experiment's jobs.

    The experiment's `grids` are modified first by the overrides in `sizes[size]`, then by those in
    `debug.overrides`, then by the command line's `overrides`. A later override replaces an earlier
    one of the same key; the keys for evaluation lengths also replace each other.
    """
    plain: Any = OmegaConf.to_container(
        OmegaConf.masked_copy(config, ["grids", "sizes", "size"]), resolve=False
    )
    later = list(overrides)
    for earlier in (_debug_overrides(config, plain["grids"]), _size_overrides(plain)):
        later = [*_without_replaced(earlier, later, config_dirs), *later]
    return expand(plain["grids"], later, config_dirs)


def _debug_overrides(config: DictConfig, grids: Any) -> list[str]:
    """Return `debug.overrides`, without `evaluation.factors` if a grid sets them.

    Grids with learned position embeddings set them, because these models cannot be evaluated
    beyond L.
    """
    overrides: Sequence[str] = (config.get("debug") or {}).get("overrides", [])
    has_factors = any("evaluation.factors" in grid for grid in _check_grids(grids))
    return [o for o in overrides if not has_factors or override_key(o) != "evaluation.factors"]


def expand(
    grids: Grids | None, overrides: Sequence[str], config_dirs: Sequence[Path] = ()
) -> list[list[str]]:
    """Return the overrides of every job in `grids`, modified by the command line's `overrides`.

    Each grid is the Cartesian product of its keys' values, and the jobs are the union of all grids.
    A key on the command line takes precedence over the grids:

    - If some grids contain the value, each grid with that key keeps only its jobs with the value:
      `encoding=alibi` drops every grid whose encodings do not include alibi.
    - A value that no grid contains applies to every grid with that key: `train_length=128` runs
      the whole experiment at length 128. A new component applies only to the grids that do not
      vary the component's parameters, if there are any: `encoding=t5` runs once alongside the
      baselines, not once per base of RoPE.
    - In a grid without the key, the value is set in every job, unless the last rule drops the grid:
      `seed=1,2,3` runs every job with three seeds.
    - The keys for evaluation lengths replace each other.
    - Multiple values of `evaluation/swap` become swaps within one job, not separate jobs.
    - If the key is a parameter that some grids vary, the grids that select its component but do not
      vary the parameter are dropped: `encoding.spectrum.base=1e4` keeps only the jobs that set a
      base.

    Numbers are compared by value (5e5 equals 500000). Duplicate jobs are dropped. `config_dirs` may
    add options for `glob(*)`. Raises ConfigError for invalid grids or overrides.
    """
    axes_by_grid = [grid_axes(grid, f"grids[{i}]") for i, grid in enumerate(_check_grids(grids))]
    new_axes: list[list[Axis]] = [[] for _ in axes_by_grid]
    for axis in command_line_axes(merge_swap_choices(overrides, config_dirs), config_dirs):
        parts = _restrict_to_grids(axis, axes_by_grid)
        kept = [(i, part) for i, part in enumerate(parts) if part]
        replaced = _replaced_keys({axis.key})
        axes_by_grid = [[a for a in axes_by_grid[i] if a.key not in replaced] for i, _ in kept]
        new_axes = [[*new_axes[i], part] for i, part in kept]
    jobs: dict[frozenset[Any], list[str]] = {}
    for axes in ([*old, *new] for old, new in zip(axes_by_grid, new_axes, strict=True)):
        check_job_count(prod(len(axis.settings) for axis in axes), "the sweep")
        for settings in product(*(axis.settings for axis in axes)):
            job = frozenset((s.override.partition("=")[0], s.value) for s in settings)
            jobs.setdefault(job, [setting.override for setting in settings])
    return list(jobs.values())


def _check_grids(grids: Any) -> list[Mapping[str, Any]]:
    """Return the grids, or a single empty grid if there are none.

    Raises ConfigError if `grids` is not a list of mappings.
    """
    if not isinstance(grids, list | tuple | None):
        raise ConfigError(
            f"grids: {grids!r} must be a list of mappings from keys to lists of values"
        )
    for i, grid in enumerate(grids or []):
        if not isinstance(grid, Mapping):
            raise ConfigError(
                f"grids[{i}]: {grid!r} must be a mapping from keys to lists of values"
            )
    return list(grids or [{}])


def _without_replaced(
    earlier: Sequence[str], later: Sequence[str], config_dirs: Sequence[Path]
) -> list[str]:
    """Return the earlier overrides whose keys the later ones do not set."""
    replaced_keys = _replaced_keys({axis.key for axis in command_line_axes(later, config_dirs)})
    keys = {override: command_line_axes([override], config_dirs)[0].key for override in earlier}
    return [override for override in earlier if keys[override] not in replaced_keys]


def _replaced_keys(keys: set[str]) -> set[str]:
    """Return the keys that overrides of `keys` replace: any key for lengths replaces the others."""
    return keys | set(LENGTH_KEYS) if keys & set(LENGTH_KEYS) else keys


def _size_overrides(plain: Mapping[str, Any]) -> list[str]:
    sizes, size = plain["sizes"], plain["size"]
    if sizes is None and size == DEFAULT_SIZE:
        return []
    if sizes is None:
        raise ConfigError(f"size={size}: this experiment has no sizes; omit size")
    if size not in sizes:
        raise ConfigError(f"size={size}: unknown size (available: {', '.join(sizes)})")
    return sizes[size]


def _restrict_to_grids(axis: Axis, axes_by_grid: list[list[Axis]]) -> list[Axis | None]:
    """Return, for each grid, the part of a command-line axis that applies; None drops the grid."""
    values = [_grid_values(axis.key, axes) for axes in axes_by_grid]
    new_values = {setting.value for setting in axis.settings}.difference(*filter(None, values))
    grids_with_key = [i for i, grid_values in enumerate(values) if grid_values]
    grids_without_parameters = [
        i for i in grids_with_key if not any(_is_inside(a.key, axis.key) for a in axes_by_grid[i])
    ]
    parts: list[Axis | None] = []
    for i, grid_values in enumerate(values):
        if grid_values is None:
            has_component = any(_is_inside(axis.key, a.key) for a in axes_by_grid[i])
            parts.append(None if grids_with_key and has_component else axis)
            continue
        gets_new_values = i in (grids_without_parameters or grids_with_key)
        allowed = grid_values | new_values if gets_new_values else grid_values
        settings = tuple(setting for setting in axis.settings if setting.value in allowed)
        parts.append(Axis(axis.key, settings) if settings else None)
    return parts


def _grid_values(key: str, axes: list[Axis]) -> set[str | None] | None:
    """Return the values of a key in a grid, or None if the grid does not have the key."""
    values = ({setting.value for setting in axis.settings} for axis in axes if axis.key == key)
    return next(values, None)


def _is_inside(key: str, component: str) -> bool:
    return key.replace("/", ".").startswith(component.replace("/", ".") + ".")
