"""The command line: `posenc COMMAND key=value ...`."""

from posenc.cli.main import main

__all__ = ["main"]
