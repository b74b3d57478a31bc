"""Composition with Hydra; Hydra's exceptions become ConfigErrors with messages for the user."""

import pickle
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from posenc.config.config_dir_source import ConfigDirSource
from posenc.config.errors import ConfigError, did_you_mean, first_line, one_line
from posenc.config.expansion import check_interpolations
from posenc.config.overrides import override_key, parse
from posenc.config.paths import allowed_options, conf_dir, groups, options

LENGTH_KEYS = ("evaluation.lengths", "evaluation.offsets", "evaluation.factors")
"""Mutually exclusive keys that set the evaluation lengths."""
LIST_GROUPS = ("logger", "callbacks")
"""The config groups that can be set to a list of options."""
MAX_OPTION_LENGTH = 250
"""The maximum length of an option, a file name without `.yaml`; file systems allow 255 bytes."""


def compose(
    command: str,
    overrides: Sequence[str],
    config_dirs: Sequence[Path] = (),
    *,
    with_hydra: bool = False,
) -> DictConfig:
    """Return the configuration of `command` (a file in `conf/`) with `overrides`, unresolved.

    `config_dirs` are searched after `conf/`, so they add options but do not replace those of
    posenc. `with_hydra` keeps the node `hydra` with Hydra's own settings. Raises ConfigError for
    invalid syntax, for unknown groups, options and keys, and for anything else that Hydra rejects.

    Without `config_dirs`, results are cached until a file in `conf/` changes.
    """
    if config_dirs:
        config = _compose(command, overrides, config_dirs)
    else:
        stats = [(file, file.stat()) for file in conf_dir().rglob("*.yaml") if file.exists()]
        files = frozenset((file, stat.st_mtime_ns, stat.st_size) for file, stat in stats)
        config = pickle.loads(_pickled_composition(command, tuple(overrides), files))
    return config if with_hydra else _without_hydra(config)


@lru_cache(maxsize=128)
def _pickled_composition(
    command: str,
    overrides: tuple[str, ...],
    files: frozenset[tuple[Path, int, int]],
) -> bytes:
    return pickle.dumps(_compose(command, overrides, ()))


def _without_hydra(config: DictConfig) -> DictConfig:
    stripped = OmegaConf.masked_copy(config, [name for name in config if name != "hydra"])
    OmegaConf.set_struct(stripped, True)  # unknown keys are errors, as in Hydra's composition
    return stripped


def _compose(command: str, overrides: Sequence[str], config_dirs: Sequence[Path]) -> DictConfig:
    folders = [f"{ConfigDirSource.scheme()}://{folder.resolve()}" for folder in config_dirs]
    searchpath = [f"hydra.searchpath=[{','.join(folders)}]"]
    all_overrides = [*(searchpath if config_dirs else []), *_reset_other_lengths(overrides)]
    _check_options(parse(overrides), config_dirs)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3", job_name="posenc"):
        try:
            config = hydra_compose(command, overrides=all_overrides, return_hydra_config=True)
            _check_packages(config)
            check_interpolations(config)
            return config
        except MissingConfigException as error:
            raise _unknown_option_error(error, config_dirs) from None
        except ConfigCompositionException as error:
            composition_error = error  # handled below, because _unknown_key_error calls Hydra again
        except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
            raise ConfigError(first_line(error)) from None
        except RecursionError:
            raise ConfigError(
                "the defaults list of a YAML file includes the file itself, directly or through"
                " other files; remove it from the list"
            ) from None
    raise _composition_error(composition_error, command, overrides, config_dirs)


class Composer:
    """Composes the jobs of a sweep, calling Hydra once per distinct set of config group choices.

    The other overrides are applied to a copy of that composition, as Hydra would apply them. Jobs
    with `+key=`, `~key` or an interpolation are composed by Hydra alone.
    """

    def __init__(self, command: str, config_dirs: Sequence[Path] = ()) -> None:
        self.command, self.config_dirs = command, list(config_dirs)
        self.defaults = compose(command, [], config_dirs)
        self.default_values: Any = OmegaConf.to_container(self.defaults)
        self._groups = set(groups())
        self._compositions: dict[tuple[str, ...], tuple[bytes, dict[str, str | None]]] = {}

    def compose(self, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str | None]]:
        """Return the unresolved configuration and the chosen option of each config group.

        Raises ConfigError as the function `compose` does.
        """
        parsed = parse(_reset_other_lengths(overrides))
        _check_options(parsed, self.config_dirs)
        values = [override for override in parsed if self._is_value(override)]
        choices = [str(override.input_line) for override in parsed if override not in values]
        if any(override.type is not OverrideType.CHANGE for override in parsed) or "${" in "".join(
            overrides
        ):  # the result depends on the order of all overrides, or on other settings
            return self._compose(overrides)
        config, chosen_options = self._compose(choices)
        for override in values:
            key = override.key_or_group
            try:
                OmegaConf.update(config, key, override.value())
            except (ConfigAttributeError, ConfigKeyError):
                raise _unknown_key_error(key, self.command, overrides, self.config_dirs) from None
            except OmegaConfBaseException:  # such as a parent that is a number; Hydra reports it
                return self._compose(overrides)
        return config, chosen_options

    def _is_value(self, override: Override) -> bool:
        is_choice = override.key_or_group in self._groups or override.package is not None
        return not is_choice and not override.is_hydra_override()

    def _compose(self, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str | None]]:
        key = tuple(overrides)
        if key not in self._compositions:
            composed = compose(self.command, overrides, self.config_dirs, with_hydra=True)
            pickled = pickle.dumps(_without_hydra(composed))
            self._compositions[key] = pickled, dict(composed.hydra.runtime.choices)
        pickled, chosen_options = self._compositions[key]
        return pickle.loads(pickled), chosen_options  # nine times as fast as copy.deepcopy


def dotted_keys(config: DictConfig) -> list[str]:
    """Return every key of a configuration as a dotted path."""
    return _dotted_keys("", OmegaConf.to_container(config, resolve=False))[1:]


def _check_options(overrides: Sequence[Override], config_dirs: Sequence[Path]) -> None:
    """Raise ConfigError if a config group is set to a value that cannot name an option.

    Also raises it for a group whose path is written with dots.
    """
    for override in overrides:
        key, value, line = override.key_or_group, override.value(), override.input_line
        group = key.replace(".", "/")
        if group not in groups() or override.is_delete():
            continue
        if group != key:
            if isinstance(value, str):
                available = ", ".join(allowed_options(group, config_dirs))
                raise ConfigError(f"{line}: set the config group {group}= to one of: {available}")
            continue
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(n, str) and len(n) <= MAX_OPTION_LENGTH for n in names):
            available = ", ".join(allowed_options(group, config_dirs))
            if isinstance(value, dict):
                raise ConfigError(
                    f"{group}: write this mapping to DIR/{group}/NAME.yaml, and add"
                    f" --config-dir DIR and {group}=NAME; available: {available}"
                )
            raise ConfigError(
                f"{line}: set {group}= to one of: {available}; a name that Hydra reads as a number,"
                " such as nan, cannot be used"
            )
        if isinstance(value, list) and group == "logger" and "none" in value and len(value) > 1:
            raise ConfigError(f"{line}: none means that there is no logger; omit it from the list")
        if isinstance(value, list) and group not in LIST_GROUPS:
            raise ConfigError(
                f"{line}: {group} takes a single option; for a sweep, omit the brackets:"
                f" {group}={','.join(names)}"
            )


def _reset_other_lengths(overrides: Sequence[str]) -> list[str]:
    """Return `overrides`; if they set one of `LENGTH_KEYS`, the others are set to null first.

    Raises ConfigError if they set more than one.
    """
    set_keys = [key for key in LENGTH_KEYS if any(override_key(o) == key for o in overrides)]
    if len(set_keys) > 1:
        raise ConfigError(f"{' and '.join(set_keys)} are mutually exclusive; set only one")
    resets = [f"{key}=null" for key in LENGTH_KEYS if set_keys and key not in set_keys]
    return [*resets, *overrides]


def _check_packages(config: DictConfig) -> None:
    """Raise ConfigError if an option of `experiment` or `size` lacks `@package _global_`."""
    for group in ("experiment", "size"):
        if OmegaConf.is_dict(config.get(group)):
            raise ConfigError(
                f"{group}: the first line of the option's YAML file must be"
                f" `# @package _global_`; otherwise its keys have no effect"
            )


def _unknown_option_error(
    error: MissingConfigException, config_dirs: Sequence[Path]
) -> ConfigError:
    missing = error.missing_cfg_file or ""
    group, _, option = missing.rpartition("/")
    available = allowed_options(group, config_dirs)
    if not error.options:
        return ConfigError(first_line(error))
    return ConfigError(
        f"{group}={option}: unknown option{did_you_mean(option, available)};"
        f" available: {', '.join(available)}; use --config-dir DIR for your own options"
    )


def _composition_error(
    error: ConfigCompositionException,
    command: str,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
) -> ConfigError:
    """Return an error for what Hydra rejects: an unknown key, or an invalid YAML file."""
    match = re.search(
        r"Could not (?:override|append to|delete from) ?(?:config\.)? ?'([^']+)'", str(error)
    )
    if match is None or str(error).startswith("In '"):  # in the defaults list of a YAML file
        return ConfigError(one_line(error))
    return _unknown_key_error(match.group(1), command, overrides, config_dirs)


def _unknown_key_error(
    key: str, command: str, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> ConfigError:
    """Return an error that names an unknown key and similar keys of the configuration."""
    choices = [o for o in overrides if override_key(o) in groups() and o.partition("=")[0] != key]
    config = compose(command, choices, config_dirs, with_hydra=True)
    if key.startswith("hydra.launcher."):
        available = [f"hydra.launcher.{name}" for name in config.hydra.launcher if name[0] != "_"]
        return ConfigError(f"unknown key {key}; available: {', '.join(available)}")
    chosen = config.hydra.runtime.choices
    known_groups = [group for group in groups() if group in chosen or _parent(group) in chosen]
    known_keys = [*known_groups, *dotted_keys(_without_hydra(config))]
    hint = did_you_mean(key, [known for known in known_keys if known != key])
    parents = [f" under {o}" for o in choices if key.startswith(f"{override_key(o)}.")]
    parent = parents[0] if parents else ""
    if parent and not parent.startswith(" under encoding="):  # their YAML files list every key
        hint += f"; +{key}=... adds a parameter that the YAML file omits"
    group, _, rest = key.partition(".")
    option = rest.partition(".")[0]
    if group in groups() and not config.get(group) and option in options(group, config_dirs):
        hint += f"; add {group}={option}"
    name = command.replace("_", "-")  # as in `posenc search-factors`
    help_command = "posenc train --cfg" if command == "train" else f"posenc {name} --help"
    return ConfigError(f"unknown key {key}{parent}{hint}; `{help_command}` prints the keys")


def _parent(group: str) -> str:
    return group.rpartition("/")[0]


def _dotted_keys(path: str, node: object) -> list[str]:
    if not isinstance(node, dict):
        return [path]
    children = [_dotted_keys(f"{path}.{key}".lstrip("."), child) for key, child in node.items()]
    return [path, *(key for keys in children for key in keys)]
