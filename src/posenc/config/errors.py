"""Exceptions that a command reports by printing their message, and helpers for messages.

For a missing optional dependency, the message names the extra that installs it (`import_extra`).
"""

import errno
import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeGuard

MAX_WORD_LENGTH, MAX_MESSAGE_LENGTH = 500, 2000
"""The longest word and the longest message, in characters, that are printed in full."""
_BIDIRECTIONAL_CODES = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}  # reorder the text
_CONTROL_CODES = {*range(0x20), *range(0x7F, 0xA0), *_BIDIRECTIONAL_CODES} - {*map(ord, "\t\n")}
_SURROGATES = range(0xD800, 0xE000)  # in the names of files that are not UTF-8
_REPLACEMENTS = dict.fromkeys({*_CONTROL_CODES, *_SURROGATES}, "\N{REPLACEMENT CHARACTER}")
PATH_ERRORS = (
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)
"""The `errno` values that mean that a user-supplied path cannot be used."""
EXTRAS = {
    "wandb_workspaces": "dashboard",
    "submitit": "submitit",
    "ray": "ray",
    "psutil": "psutil",
    "tensorboard": "tensorboard",
    "optuna": "optuna",
    "pytorch_optimizer": "lion",
}
"""Module -> the posenc extra that installs it."""


class PosencError(Exception):
    """An error whose message is self-explanatory, so no traceback is printed."""

    exit_code = 1


class ConfigError(PosencError):
    """An invalid command or configuration, usually rejected before anything is started.

    The message states the value, the limit and the remedy.
    """

    exit_code = 2


class RunError(PosencError):
    """A valid request failed, for example because a file of a run is corrupt."""


def abbreviate(message: str) -> str:
    """Return a message with the middle cut out of very long words, or of a very long message.

    Messages quote user input, which is recognizable from its beginning and end.
    """
    words = re.sub(
        rf"\S{{{MAX_WORD_LENGTH + 1},}}", lambda match: _truncate_middle(match[0], 100), message
    )
    return (
        _truncate_middle(words, MAX_MESSAGE_LENGTH // 2)
        if len(words) > MAX_MESSAGE_LENGTH
        else words
    )


def _truncate_middle(text: str, kept: int) -> str:
    return f"{text[:kept]} ... ({len(text):,} characters) ... {text[-kept:]}"


def printable(text: str) -> str:
    """Return text with its control characters replaced, except for tabs and line breaks.

    Characters that change the direction of text, and surrogates, which cannot be printed, are also
    replaced. Text from the files of a run could otherwise control the terminal.
    """
    return text.translate(_REPLACEMENTS)


def one_line(value: object) -> str:
    """Return `value` as a string without line breaks."""
    return " ".join(str(value).split())


def describe_error(error: BaseException) -> str:
    """Return an exception's type and message on one line."""
    try:
        return one_line(f"{type(error).__name__}: {error}")
    except Exception:  # `__str__` of a user's exception may fail
        return type(error).__name__


def is_path_error(error: BaseException) -> TypeGuard[OSError]:
    """Return whether an exception means that a path cannot be used."""
    return isinstance(error, OSError) and error.errno in PATH_ERRORS and error.filename is not None


def describe_path_error(error: OSError) -> str:
    """Return the message for a path that the operating system cannot use."""
    reason = "is not a folder" if isinstance(error, FileExistsError) else error.strerror or error
    path = error.filename2 or error.filename  # filename2 is the target of a rename
    in_the_way = error.errno in (errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOTDIR)
    remedy = "use another path" + (", or move this one elsewhere" if in_the_way else "")
    if error.errno == errno.EROFS:
        remedy = "make it writable, or use another path"
    return f"{path or 'a file'}: {reason}; {remedy}"


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    return str(error).strip().split("\n", 1)[0]


def plural(count: int, noun: str) -> str:
    """Return `1 run` or `3 runs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return ` (did you mean a or b?)` for the options closest to `name`, or an empty string.

    Options that `name` abbreviates (`optimizer.lr` for `optimizer.learning_rate`) come first, then
    those that end with it (`evaluation/swap` for `swap`). If there are none, the options with the
    most similar spelling are returned.
    """
    names = list(dict.fromkeys(options))
    nearest = [option for option in names if _abbreviates(name, option)]
    nearest += [option for option in names if option.endswith((f".{name}", f"/{name}"))]
    nearest = nearest or get_close_matches(name, names, n=3, cutoff=0.5)
    *others, last = nearest[:3] or [""]
    choices = f"{', '.join(others)} or {last}" if others else last
    return f" (did you mean {choices}?)" if nearest else ""


def _abbreviates(name: str, option: str) -> bool:
    """Return whether `name` is `option` with its last part replaced by initials.

    The parents may be omitted: `optimizer.lr` and `lr` both abbreviate `optimizer.learning_rate`.
    """
    *parents, last = name.split(".")
    *option_parents, option_last = option.split(".")
    initials = "".join(word[:1] for word in option_last.split("_"))
    return len(last) > 1 and last == initials and parents in ([], option_parents)


def import_extra(module: str, feature: str) -> Any:
    """Import a module that `feature` needs. Raises ConfigError if that fails."""
    try:
        return import_module(module)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != module:
            raise ConfigError(
                f"{feature} needs {module}, which cannot be imported: {one_line(error)}"
            ) from None
        raise ConfigError(
            f"{feature} needs {module}; install it with pip install 'posenc[{EXTRAS[module]}]'"
        ) from None
