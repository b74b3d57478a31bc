"""The entry point: runs a command, and reports an error as a message and an exit code."""

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from posenc import __version__
from posenc.cli.arguments import parse
from posenc.cli.help import COMMANDS, command_help, overview
from posenc.config.errors import (
    ConfigError,
    PosencError,
    abbreviate,
    describe_path_error,
    did_you_mean,
    is_path_error,
    printable,
)
from posenc.runs.files import disk_message

KEYBOARD_INTERRUPT = 130
"""The conventional exit code after Ctrl-C."""
BROKEN_PIPE = 141
"""The conventional exit code of a program whose output was closed: 128 + SIGPIPE."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: success. 1: a failure, for example of a run. 2: an invalid request. 130: stopped by Ctrl-C
    or, in a sweep, by another signal. 141: the output was closed.
    """
    _open_closed_descriptors()
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else "help"
    try:
        exit_code = _run(command, arguments[1:])
        if sys.stdout is not None:  # it is None if it was closed when Python started
            sys.stdout.flush()
        return exit_code
    except PosencError as error:
        return _print_error(command, str(error), error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        return BROKEN_PIPE
    except OSError as error:
        if message := disk_message(error):
            return _print_error(command, message, PosencError.exit_code)
        if not is_path_error(error):
            raise
        return _print_error(command, describe_path_error(error), ConfigError.exit_code)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich exits if its output is closed
            return BROKEN_PIPE
        # If this were not caught, posenc would exit with that code, which may be 0.
        message = f"code outside posenc called sys.exit({error.code!r})"
        return _print_error(command, message, ConfigError.exit_code)
    except KeyboardInterrupt:
        return KEYBOARD_INTERRUPT


def _open_closed_descriptors() -> None:
    """Open /dev/null as stdin, stdout or stderr if it is closed, as it is in some daemons.

    Otherwise, the next file that is opened here or in a child process would take its place.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _print_error(command: str, message: str, exit_code: int) -> int:
    with suppress(BrokenPipeError):
        print(abbreviate(printable(f"posenc {command}: {message}")), file=sys.stderr)
    return exit_code


def _run(command: str, arguments: list[str]) -> int:
    if command in ("--help", "-h", "help"):
        print(overview())
        return 0
    if command == "--version":
        print(f"posenc {__version__}")
        return 0
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise ConfigError(f"unknown command{hint}; available: {', '.join(COMMANDS)}")
    if "--help" in arguments or "-h" in arguments:
        print(command_help(command))
        return 0
    # The current directory may contain untrusted code, so nothing in it is imported unless the user
    # names a module (see `import_target`), even if Python was started with `-m`.
    try:
        current = os.getcwd()
    except FileNotFoundError:
        raise ConfigError("the current directory has been deleted; change to another one") from None
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [p for p in sys.path if p and (p != current or p in python_path)]
    module = importlib.import_module(f"posenc.cli.{command.replace('-', '_')}")
    return module.run(parse(command, arguments))
