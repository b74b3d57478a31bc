"""The entry point, which runs a command and reports errors as a message and an exit code."""

import importlib
import os
import sys
from collections.abc import Sequence

from posenc.cli.arguments import parse
from posenc.cli.help import COMMANDS, command_help, overview
from posenc.config.errors import ConfigError, PosencError, did_you_mean
from posenc.runs.files import DISK_FULL_MESSAGE, is_disk_full

KEYBOARD_INTERRUPT = 130
"""The conventional exit code after Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return 0 for success, 1 for a failed run or 2 for an invalid request."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview())
        return 0
    try:
        return _run(words[0], words[1:])
    except PosencError as error:
        print(f"posenc {words[0]}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        if not is_disk_full(error):
            raise
        print(f"posenc {words[0]}: {DISK_FULL_MESSAGE}", file=sys.stderr)
        return PosencError.exit_code
    except KeyboardInterrupt:
        return KEYBOARD_INTERRUPT


def _run(command: str, words: list[str]) -> int:
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise ConfigError(f"unknown command{hint}; available: {', '.join(COMMANDS)}")
    if "--help" in words or "-h" in words:
        print(command_help(command))
        return 0
    # Custom modules are in the current folder, which console scripts do not search.
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module(f"posenc.cli.{command.replace('-', '_')}")
    return module.run(parse(command, words))
