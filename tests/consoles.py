"""What a test's console has printed."""

import io

from rich.console import Console


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
