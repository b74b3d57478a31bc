"""Locations in a user's source files, for messages about their code."""

import inspect
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from posenc.config.errors import ConfigError, describe_error


def definition_location(definition: Callable[..., Any]) -> str:
    """Return the location of a definition, such as `mine.py, line 7`, or its module's name."""
    definition = inspect.unwrap(definition)
    try:
        file, (_, line) = inspect.getfile(definition), inspect.getsourcelines(definition)
    except (OSError, TypeError):  # not defined in a file
        return f"{definition.__module__}"
    return _format(file, max(line, 1))


def error_location(error: BaseException, definitions: Iterable[Callable[..., Any]]) -> str | None:
    """Return the innermost line that an exception passed through in the files of `definitions`.

    Returns None if there is no such line.
    """
    files = set()
    for definition in definitions:
        with suppress(OSError, TypeError):  # not defined in a file
            files.add(inspect.getfile(definition))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            return _format(frame.filename, frame.lineno or 1)
    return None


def user_code_error(
    error: BaseException,
    definition: Callable[..., Any],
    parts: Iterable[Callable[..., Any]] = (),
) -> ConfigError:
    """Return an error for an exception that user code raised.

    It names the line in the files of `definition` or `parts`, or else the definition.
    """
    location = error_location(error, [definition, *parts]) or definition_location(definition)
    return ConfigError(f"{location}: {definition.__name__}: {describe_error(error)}")


def import_location(error: BaseException) -> str:
    """Return text such as ` (mine.py, line 3)` for the line of a module whose import failed.

    It is the innermost line outside Python's import system and this package; "" if there is none.
    """
    package = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        in_package = Path(frame.filename).is_relative_to(package)
        is_user_file = not frame.filename.startswith("<") and not in_package
        if is_user_file and "importlib" not in frame.filename:
            return f" ({_format(frame.filename, frame.lineno or 1)})"
    return ""


def _format(file: str, line: int) -> str:
    path, folder = Path(file).resolve(), Path.cwd()
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    return f"{shown}, line {line}"
