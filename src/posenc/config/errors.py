"""What a person is told when something they asked for cannot be done."""

from collections.abc import Iterable
from difflib import get_close_matches


class PosencError(Exception):
    """A failure with a message for people; the command line prints it alone and exits."""

    exit_code = 1


class ConfigError(PosencError):
    """The request itself is wrong: nothing was started. The message names value, limit, remedy."""

    exit_code = 2


class RunError(PosencError):
    """A run could not go on although its configuration was sound."""


def one_line(text: object) -> str:
    """What is said, by an error for one, without line breaks."""
    return " ".join(str(text).split())


def named(error: BaseException) -> str:
    """An error's kind and what it says, in one line."""
    return one_line(f"{type(error).__name__}: {error}")


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """` (nearest: a, b)` for the options that look like `name`, or an empty string."""
    nearest = get_close_matches(name, list(dict.fromkeys(options)), n=3, cutoff=0.5)
    return f" (nearest: {', '.join(nearest)})" if nearest else ""
