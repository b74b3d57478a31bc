"""Reads and checks `config.yaml`, the configuration that planning saved in a run's directory.

It may come from another version or another person. It is checked completely before it is used, by
the functions that check a command line, so that other code can rely on its types.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from posenc.config.errors import ConfigError, RunError, one_line
from posenc.config.identity import with_new_options
from posenc.config.saved_yaml import load_yaml
from posenc.config.settings import TYPES, check_settings, check_values
from posenc.config.values import walk
from posenc.runs.files import read_text

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
"""The maximum size of a `config.yaml`; those of the shipped experiments are about 6 kB."""

VERSION = re.compile(r"[\w.+!-]{1,40}")


def read_config(file: Path) -> dict[str, Any]:
    """Return the configuration in a `config.yaml`, whose settings all have valid types.

    Its `modules` are empty: the command line decides which modules are trusted, not this file.
    Options that were introduced since have the defaults that preserve the old behavior. Raises
    RunError if the file is corrupt, was not written by planning, contains an alias or an
    interpolation, or is of an earlier version.
    """
    try:
        values = load_yaml(read_text(file, MAX_CONFIG_BYTES))
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise RunError(f"cannot read {file} ({one_line(error)})") from None
    if not isinstance(values, dict):
        raise RunError(f"{file} is not a mapping")
    for key, value in walk(values):
        if isinstance(value, str) and "${" in value:
            raise RunError(
                f"{file}: {key} is an interpolation, which could read environment variables;"
                f" planning does not write interpolations"
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
    if not VERSION.fullmatch(values["planned"]["posenc_version"]):
        raise RunError(f"{file}: planned.posenc_version is not a version")
    return {**values, "model": with_new_options(values["model"]), "modules": []}
