"""Returns what was printed to a rich console that writes to memory."""

import io

from rich.console import Console


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
