"""A console on which text from the files of a run cannot control the terminal.

A run may come from someone else, and its names and messages are printed. Escape sequences in them
could hide or forge output, and rich's markup could create links.
"""

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from posenc.config.errors import printable


class Console(RichConsole):
    """A rich console without markup that replaces control characters as `printable` does."""

    def __init__(self, **kwargs: Any) -> None:
        # With COLUMNS=0, rich would print nothing.
        environment = {k: v for k, v in os.environ.items() if (k, v) != ("COLUMNS", "0")}
        super().__init__(markup=False, _environ=environment, **kwargs)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_unprintable = not segment.control and not segment.text.isprintable()
            yield segment._replace(text=printable(segment.text)) if is_unprintable else segment
