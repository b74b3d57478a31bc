"""Hydra composes; what goes wrong is told in one message."""

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

from posenc.config.errors import ConfigError
from posenc.config.explain import first_line, key_of, unknown_key, unknown_option, unreadable
from posenc.config.keys import leaves
from posenc.config.numbers import nonfinite
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

    def keys_under(chosen: Sequence[str]) -> list[str]:
        return leaves(compose(command, chosen, config_dirs))

    with hydra_at_conf():
        try:
            return hydra_compose(command, overrides=complete, return_hydra_config=with_hydra)
        except MissingConfigException as error:
            raise unknown_option(error) from None
        except ConfigCompositionException as error:
            raise unknown_key(error, overrides, keys_under) from None
        except OverrideParseException as error:
            raise unreadable(error) from None
        except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
            raise ConfigError(first_line(error)) from None


@contextmanager
def hydra_at_conf() -> Iterator[None]:
    """Hydra initialised at `conf/`, and cleared again."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3", job_name="posenc"):
        yield


def resolve(config: DictConfig) -> Any:
    """A configuration as plain mappings and lists, its interpolations resolved.

    ConfigError for what is missing, cannot be resolved, or is no finite number.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None
    for key, value in nonfinite(plain):
        raise ConfigError(f"{key}={value} must be a finite number")
    return plain


def parse(overrides: Sequence[str]) -> list:
    """The overrides as Hydra's parser reads them; ConfigError where it cannot."""
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise unreadable(error) from None


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
