"""The jobs of a sweep as Hydra overrides, from an experiment's grids and the command line."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import LENGTH_KEYS, compose
from posenc.config.errors import ConfigError
from posenc.config.overrides import (
    Axis,
    Options,
    Setting,
    command_line_axes,
    grid_axes,
    parse,
)
from posenc.config.paths import options_in

DEFAULT_SIZE = "laptop"
SWEEP_KEYS = ("experiment", "size", "grids", "sizes", "retry", "name", "outputs_dir")
"""Keys that have one value for a whole sweep."""

Grids = Sequence[Mapping[str, Any]]


def compose_sweep(
    command: str, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> DictConfig:
    """Compose the settings that all jobs of a sweep share: experiment, size, folder, launcher."""
    return compose(command, sweep_overrides(overrides), config_dirs, with_hydra=True)


def sweep_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that hold for a whole sweep; ConfigError if one has several values."""
    selected = [
        o for o in parse(overrides) if o.key_or_group in SWEEP_KEYS or o.is_hydra_override()
    ]
    for override in selected:
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: cannot be swept; give a single value")
    return [str(override.input_line) for override in selected]


def sweep_jobs(
    command: str, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> list[list[str]]:
    """Return the overrides of every job of `command` (a file in `conf/`) under a command line."""
    config = compose_sweep(command, overrides, config_dirs)
    return expand_config(config, overrides, options_in(config_dirs))


def expand_config(
    config: DictConfig, overrides: Sequence[str], options: Options | None = None
) -> list[list[str]]:
    """Return the jobs of an experiment: its `grids` under its `sizes[size]`, then `overrides`.

    An override of the command line replaces the size's override of the same key. The keys of the
    evaluation lengths count as one.
    """
    plain: Any = OmegaConf.to_container(
        OmegaConf.masked_copy(config, ["grids", "sizes", "size"]), resolve=False
    )
    replaced = {axis.key for axis in command_line_axes(overrides, options)}
    if replaced & set(LENGTH_KEYS):
        replaced |= set(LENGTH_KEYS)
    size_overrides = [
        override
        for override in _size_overrides(plain["sizes"], plain["size"])
        if command_line_axes([override], options)[0].key not in replaced
    ]
    return expand(plain["grids"], [*size_overrides, *overrides], options)


def expand(
    grids: Grids | None, overrides: Sequence[str], options: Options | None = None
) -> list[list[str]]:
    """Return every job's overrides: the union of the products `grids`, times the command line.

    A key on the command line takes precedence over the grids:

    - each grid keeps those of the values that it has: `encoding=alibi` keeps the jobs with alibi
      and drops a grid without it;
    - a value that no grid has is added to every grid with that key: `train_length=128` runs the
      experiment at 128. A new component is added to grids that vary nothing inside it, if there
      are any: `encoding=t5` runs once beside the baselines, not once per rotary base;
    - a grid that chooses a component without a key that other grids vary inside it is dropped:
      `encoding.spectrum.base=1e4` keeps only jobs that have a base.

    Values compare as numbers if they are numbers (5e5 is 500000). Duplicate jobs are kept once.
    `options` lists a config group for `glob(*)`. Raises ConfigError for invalid grids or overrides.
    """
    branches = [grid_axes(grid, f"grids[{i}]") for i, grid in enumerate(_validated(grids))]
    tails: list[list[Axis]] = [[] for _ in branches]
    for axis in command_line_axes(overrides, options):
        parts = zip(branches, tails, _axis_by_branch(axis, branches), strict=True)
        kept = [(branch, tail, part) for branch, tail, part in parts if part]
        branches = [[a for a in branch if a.key != axis.key] for branch, _, _ in kept]
        tails = [[*tail, part] for _, tail, part in kept]
    unique: dict[frozenset[Any], list[str]] = {}
    for branch, tail in zip(branches, tails, strict=True):
        for job in product(*(axis.settings for axis in [*branch, *tail])):
            unique.setdefault(frozenset(map(_identity, job)), [setting.text for setting in job])
    return list(unique.values())


def _validated(grids: Any) -> list[Mapping[str, Any]]:
    if not isinstance(grids, list | tuple | None):
        raise ConfigError(f"grids: {grids!r} must be a list of mappings of keys to lists of values")
    for i, grid in enumerate(grids or []):
        if not isinstance(grid, Mapping):
            raise ConfigError(f"grids[{i}]: {grid!r} must be a mapping of keys to lists of values")
    return list(grids or [{}])


def _size_overrides(sizes: Any, size: str) -> list[str]:
    if sizes is None and size == DEFAULT_SIZE:
        return []
    if sizes is None:
        raise ConfigError(f"size={size}: this experiment has no sizes; leave size out")
    if not isinstance(sizes, Mapping) or not isinstance(sizes.get(size, []), list):
        raise ConfigError(f"sizes: {sizes!r} must be a mapping of sizes to lists of overrides")
    if size not in sizes:
        raise ConfigError(f"size={size}: unknown size (available: {', '.join(sizes)})")
    return sizes[size]


def _axis_by_branch(axis: Axis, branches: list[list[Axis]]) -> list[Axis | None]:
    """Return the part of a command-line axis for each branch; None if the branch is dropped."""
    values = [_branch_values(branch, axis.key) for branch in branches]
    new = {setting.value for setting in axis.settings}.difference(*(v for v in values if v))
    with_key = [i for i, v in enumerate(values) if v]
    plain = [i for i in with_key if not any(_inside(a.key, axis.key) for a in branches[i])]
    parts: list[Axis | None] = []
    for i, branch_values in enumerate(values):
        if branch_values is None:
            lacks_key = with_key and any(_inside(axis.key, a.key) for a in branches[i])
            parts.append(None if lacks_key else axis)
            continue
        kept = branch_values | new if i in (plain or with_key) else branch_values
        settings = tuple(setting for setting in axis.settings if setting.value in kept)
        parts.append(Axis(axis.key, settings) if settings else None)
    return parts


def _branch_values(branch: list[Axis], key: str) -> set[str | None] | None:
    for axis in branch:
        if axis.key == key:
            return {setting.value for setting in axis.settings}
    return None


def _inside(key: str, component: str) -> bool:
    return key.replace("/", ".").startswith(component.replace("/", ".") + ".")


def _identity(setting: Setting) -> tuple[str, str | None]:
    return setting.text.partition("=")[0], setting.value
