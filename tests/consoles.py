"""The output of a test's console."""

import io

from rich.console import Console


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
