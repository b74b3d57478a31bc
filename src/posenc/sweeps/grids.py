"""Every job of a sweep, as plain Hydra overrides, from an experiment's grids and a command line."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import LENGTH_KEYS, compose
from posenc.config.errors import ConfigError
from posenc.config.paths import options_in
from posenc.sweeps.overrides import Axis, Options, Setting, command_axes, grid_axes, steering

DEFAULT_SIZE = "laptop"
Grids = Sequence[Mapping[str, Any]]


def expand(
    grids: Grids | None, overrides: Sequence[str], options: Options | None = None
) -> list[list[str]]:
    """For every job its overrides: the union of the products `grids`, times the command line.

    A key that the command line names leaves the grids to it, and every job carries what the
    command line says:

    - a grid keeps those of the values given that it holds: `encoding=alibi` keeps the jobs with
      alibi, and a grid without it drops out;
    - a value that no grid holds joins every grid that has the key: `train_length=128` runs the
      experiment at 128. A new component joins the grids that vary nothing inside it, where there
      are such: `encoding=t5` runs beside the baselines, not once for each rotary base;
    - a grid that chooses a component without the key inside it that other grids vary drops out:
      `encoding.spectrum.base=1e4` leaves the jobs that have a base.

    Values compare as numbers where they are (5e5 is 500000). A job's overrides stand in the order
    of its grid, then of the command line; a job that comes twice is kept once, and one there always
    is: a value that some grid holds keeps that grid, and any other joins one. `options` lists a
    config group for `glob(*)`. Raises ConfigError for what is neither a grid nor an override.
    """
    command = command_axes(overrides, options)
    branches = [grid_axes(grid, f"grids[{i}]") for i, grid in enumerate(_checked(grids))]
    tails: list[list[Axis]] = [[] for _ in branches]
    for axis in command:
        rows = list(zip(branches, tails, _shares(axis, branches), strict=True))
        tails = [[*tail, share] for _, tail, share in rows if share]
        branches = [[own for own in row if own.key != axis.key] for row, _, share in rows if share]
    unique: dict[frozenset[Any], list[str]] = {}
    for own, tail in zip(branches, tails, strict=True):
        for job in product(*(axis.settings for axis in [*own, *tail])):
            unique.setdefault(frozenset(map(_identity, job)), [setting.text for setting in job])
    return list(unique.values())


def jobs_under(
    command: str, arguments: Sequence[str], config_dirs: Sequence[Path]
) -> list[list[str]]:
    """The jobs of `command` (the name of a file in `conf/`) under `arguments`, which may steer."""
    config = compose(command, steering(arguments), config_dirs)
    return jobs_of(config, arguments, options_in(config_dirs))


def jobs_of(
    config: DictConfig, arguments: Sequence[str], options: Options | None = None
) -> list[list[str]]:
    """The jobs of a composed configuration: its `grids`, its `sizes[size]`, then `arguments`.

    An override of the size gives way to the command line where that names the same key, or
    another way to give the evaluation lengths.
    """
    plain: Any = OmegaConf.to_container(
        OmegaConf.masked_copy(config, ["grids", "sizes", "size"]), resolve=False
    )
    named = {axis.key for axis in command_axes(arguments, options)}
    if named & set(LENGTH_KEYS):
        named |= set(LENGTH_KEYS)
    added = _of_size(plain["sizes"], plain["size"])
    kept = [text for text in added if command_axes([text], options)[0].key not in named]
    return expand(plain["grids"], [*kept, *arguments], options)


def _checked(grids: Any) -> list[Mapping[str, Any]]:
    if not isinstance(grids, list | tuple | None):
        raise ConfigError(f"grids: {grids!r} must be a list of mappings of keys to lists of values")
    for i, grid in enumerate(grids or []):
        if not isinstance(grid, Mapping):
            raise ConfigError(f"grids[{i}]: {grid!r} must be a mapping of keys to lists of values")
    return list(grids or [{}])


def _of_size(sizes: Any, size: str) -> list[str]:
    if sizes is None and size == DEFAULT_SIZE:
        return []
    if sizes is None:
        raise ConfigError(f"size={size}: there are no sizes here; leave it out")
    if not isinstance(sizes, Mapping) or not isinstance(sizes.get(size, []), list):
        raise ConfigError(f"sizes: {sizes!r} must be a mapping of sizes to lists of overrides")
    if size not in sizes:
        raise ConfigError(
            f"size={size}: this experiment has no such size yet; it has {', '.join(sizes)}"
        )
    return sizes[size]


def _shares(axis: Axis, branches: list[list[Axis]]) -> list[Axis | None]:
    """The part of a command line's axis that falls to each branch; None where it drops out."""
    held = [_held(branch, axis.key) for branch in branches]
    new = {setting.value for setting in axis.settings}.difference(*(own for own in held if own))
    homes = [i for i, own in enumerate(held) if own]
    plain = [i for i in homes if not any(_is_inside(own.key, axis.key) for own in branches[i])]
    shares: list[Axis | None] = []
    for i, own in enumerate(held):
        if own is None:
            lacks = homes and any(_is_inside(axis.key, other.key) for other in branches[i])
            shares.append(None if lacks else axis)
            continue
        wanted = own | new if i in (plain or homes) else own
        part = tuple(setting for setting in axis.settings if setting.value in wanted)
        shares.append(Axis(axis.key, part) if part else None)
    return shares


def _held(branch: list[Axis], key: str) -> set[str | None] | None:
    for axis in branch:
        if axis.key == key:
            return {setting.value for setting in axis.settings}
    return None


def _is_inside(key: str, component: str) -> bool:
    return key.replace("/", ".").startswith(component.replace("/", ".") + ".")


def _identity(setting: Setting) -> tuple[str, str | None]:
    return setting.text.partition("=")[0], setting.value
