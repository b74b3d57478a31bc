"""Reads, checks and writes `config.yaml`, which planning saves in a run's directory.

It may come from another version or another person. It is checked completely before it is used, by
the functions that check a command line, so that other code can rely on its types.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from posenc.config.errors import ConfigError, RunError, one_line
from posenc.config.identity import (
    check_identity,
    config_digest,
    matches_digest,
    with_new_options,
)
from posenc.config.saved_yaml import dump_yaml, load_yaml
from posenc.config.settings import TYPES, check_settings, check_values
from posenc.config.values import walk
from posenc.runs.files import read_text, write_atomic

SAVED_TYPES = {
    **TYPES,
    "size": str,
    "choices": dict[str, str],
    **{f"choices.{group}": str for group in ("encoding", "model", "data")},
    **{f"planned.{key}": str for key in ("run", "hash", "fingerprint", "posenc_version")},
    "planned.lengths": list[int],
    "planned.parameters": int,
}
"""The types of the settings in a saved configuration; planning adds those in `planned`."""

MAX_CONFIG_BYTES = 1_000_000
"""The maximum size of a `config.yaml`; those of the shipped experiments are under 6 kB."""

PATTERNS = {"posenc_version": r"[\w.+!-]{1,40}", "fingerprint": "[0-9a-f]{1,64}"}
"""Regular expressions for settings in `planned` that are used in paths or printed."""


def write_config(file: Path, values: dict[str, Any]) -> None:
    """Write the configuration of a planned run atomically, with the digest `planned.digest`."""
    planned = {**values["planned"], "digest": config_digest(values)}
    write_atomic(file, dump_yaml({**values, "planned": planned}))


def read_config(file: Path, *, verify: bool = False) -> dict[str, Any]:
    """Return the configuration in a `config.yaml`, whose settings all have valid types.

    Its `modules` are empty: the command line decides which modules are trusted, not this file.
    Options that were added later have the defaults that preserve the old behavior. Raises RunError
    if the file is corrupt, was not written by planning, contains an alias or an interpolation, or
    is from a version whose settings had different names. With `verify`, also raises RunError if a
    setting that the hash covers, or one in DIGEST_FIELDS, has been edited since the run was
    planned; the hash of a run is not checked if that requires importing a custom class.
    """
    try:
        values = load_yaml(read_text(file, MAX_CONFIG_BYTES))
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise RunError(f"cannot read {file} ({one_line(error)})") from None
    if not isinstance(values, dict):
        raise RunError(f"{file} is not a mapping")
    _check_planned(file, values)
    config = {**values, "model": with_new_options(values["model"]), "modules": []}
    if verify:
        with suppress(ConfigError):  # the hash needs a class that is not trusted
            check_identity(config)
        if not matches_digest(values):
            raise RunError(
                f"{file} has been edited since the run was planned; undo the edit, or rerun the"
                f" command to recreate the file"
            )
    return config


def _check_planned(file: Path, values: dict[str, Any]) -> None:
    """Raise RunError unless `values` is the configuration of a planned run."""
    for key, value in walk(values):
        if isinstance(value, str) and "${" in value:
            raise RunError(
                f"{file}: {key} must not be an interpolation, which could read environment"
                f" variables; replace it with its value"
            )
    if "frozen" in values and "planned" not in values:
        raise RunError(
            f"{file.parent} was created by an earlier version of posenc, whose settings have"
            f" different names; train it again with this version, in another folder"
        )
    try:
        check_values(values)
        check_settings(values, SAVED_TYPES)
    except ConfigError as error:
        raise RunError(
            f"{file} is not the configuration of a planned run ({error}); restore it, or delete"
            f" {file.parent} and rerun its command"
        ) from None
    for key, pattern in PATTERNS.items():
        if not re.fullmatch(pattern, values["planned"][key]):
            raise RunError(f"{file}: planned.{key} is not a {key.removeprefix('posenc_')}")
