"""Hydra composes; what goes wrong is told in one message."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import conf_dir, groups, options

LENGTH_KEYS = ("evaluation.lengths", "evaluation.extra", "evaluation.factors")


def compose(
    command: str,
    overrides: Sequence[str],
    config_dirs: Sequence[Path] = (),
    *,
    with_hydra: bool = False,
) -> DictConfig:
    """The configuration of `command` (the name of a file in `conf/`) under `overrides`.

    `config_dirs` are searched before `conf/`. Raises ConfigError for everything that a person
    can get wrong: grammar, unknown groups, options and keys, unresolvable interpolations.
    """
    search = [f"hydra.searchpath=[{','.join(f'file://{d.resolve()}' for d in config_dirs)}]"]
    complete = [*(search if config_dirs else []), *_one_length_key(overrides)]
    _refuse_no_option(overrides, config_dirs)
    with hydra_at_conf():
        try:
            return hydra_compose(command, overrides=complete, return_hydra_config=with_hydra)
        except MissingConfigException as error:
            raise _unknown_option(error, overrides) from None
        except ConfigCompositionException as error:
            raise _unknown_key(error, command, overrides, config_dirs) from None
        except OverrideParseException as error:
            raise _unreadable(error) from None
        except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
            raise ConfigError(_first_line(error)) from None


def resolve(config: DictConfig) -> Any:
    """A configuration as plain mappings and lists, its interpolations resolved."""
    try:
        return OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {_first_line(error)}") from None


def refuse_strangers(config: DictConfig, command: str, config_dirs: Sequence[Path] = ()) -> None:
    """ConfigError for keys that `+key=` has added where nothing reads them."""
    known = compose(command, [], config_dirs)
    for key in _strangers(config, known):
        if key in groups():
            continue
        raise ConfigError(f"{key}: nothing reads this key{did_you_mean(key, _leaves(known))}")


def _strangers(config: DictConfig, known: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in config:
        if key not in known:
            yield f"{prefix}{key}"
            continue
        inner, wanted = config[key], known[key]
        if isinstance(inner, DictConfig) and isinstance(wanted, DictConfig):
            components = {"_target_"} & {*inner, *wanted}
            yield from [] if components else _strangers(inner, wanted, f"{prefix}{key}.")


@contextmanager
def hydra_at_conf() -> Iterator[None]:
    """Hydra initialised at `conf/`, and cleared again."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3", job_name="posenc"):
        yield


def key_of(override: str) -> str:
    """The key that an override of Hydra's grammar sets, without package or prefix."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def _refuse_no_option(overrides: Sequence[str], config_dirs: Sequence[Path]) -> None:
    """ConfigError for a group that is given what cannot be the name of an option."""
    for override in parse(overrides):
        group, named = override.key_or_group, isinstance(override.value(), str | list)
        if group in groups() and not named and not override.is_delete():
            there = ", ".join(options(group, list(config_dirs)))
            raise ConfigError(f"{override.input_line}: give one of {there}")


def _one_length_key(overrides: Sequence[str]) -> list[str]:
    """Naming one of the three ways to give evaluation lengths puts the other two away."""
    named = [key for key in LENGTH_KEYS if any(key_of(o) == key for o in overrides)]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(named)} are given together; give one of them")
    others = [f"{key}=null" for key in LENGTH_KEYS if named and key not in named]
    return [*others, *overrides]


def _unknown_option(error: MissingConfigException, overrides: Sequence[str]) -> ConfigError:
    missing = error.missing_cfg_file or ""
    group, _, option = missing.rpartition("/")
    options = list(error.options or [])
    if not options:
        return ConfigError(_first_line(error))
    return ConfigError(
        f"{group}={option}: there is no such option{did_you_mean(option, options)};"
        f" there are {', '.join(options)}"
    )


def _unknown_key(
    error: ConfigCompositionException,
    command: str,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
) -> ConfigError:
    match = re.search(
        r"Could not (?:override|append to|delete from) ?(?:config\.)? ?'([^']+)'", str(error)
    )
    if match is None:
        return ConfigError(_first_line(error))
    key = match.group(1)
    chosen = [o for o in overrides if key_of(o) in groups() and o.partition("=")[0] != key]
    known = [*groups(), *_leaves(compose(command, chosen, config_dirs))]
    hint = did_you_mean(key, [name for name in known if name != key])
    under = next((f" under {o}" for o in chosen if key.startswith(f"{key_of(o)}.")), "")
    return ConfigError(
        f"{key}: there is no such key{under}{hint}; `posenc train --cfg` prints all of train's"
    )


def _unreadable(error: OverrideParseException) -> ConfigError:
    return ConfigError(
        f"{error.override!r} cannot be read ({_first_line(error)}); overrides look like key=value,"
        f" quoted from the shell: 'key=[1,2]'"
    )


def _leaves(config: DictConfig) -> list[str]:
    """Every key in a configuration, as dotted paths."""
    return _paths("", OmegaConf.to_container(config, resolve=False))[1:]


def _paths(path: str, node: object) -> list[str]:
    if not isinstance(node, dict):
        return [path]
    inner = [_paths(f"{path}.{key}".lstrip("."), child) for key, child in node.items()]
    return [path, *(leaf for leaves in inner for leaf in leaves)]


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]


def parse(overrides: Sequence[str]) -> list:
    """The overrides as Hydra's parser reads them; ConfigError where it cannot."""
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise _unreadable(error) from None
