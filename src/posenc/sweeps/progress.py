"""What a person sees while a sweep runs: a live view on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PLAIN_SECONDS = 15.0


@dataclass(frozen=True)
class Row:
    """A run under way; `left` in seconds, `loss` the latest training loss in nats."""

    name: str
    phase: str
    work: float
    loss: float | None
    tokens_per_second: float | None
    left: float | None


@dataclass(frozen=True)
class Snapshot:
    """A sweep under way: `work` from 0 to 1 over all its runs, `left` in seconds.

    `counts` says in words how many runs have ended, and how.
    """

    rows: Sequence[Row]
    counts: str
    work: float
    left: float | None

    def tokens_per_second(self) -> float | None:
        rates = [row.tokens_per_second for row in self.rows if row.tokens_per_second]
        return sum(rates) if rates else None


class View(Protocol):
    """Where a sweep is shown: `say` a line that stays, `show` how things stand.

    `note` is for what `show` tells where it is live.
    """

    def say(self, line: str, style: str = "") -> None: ...
    def note(self, line: str) -> None: ...
    def show(self, snapshot: Snapshot) -> None: ...
    def close(self) -> None: ...


def view_on(console: Console) -> View:
    return TerminalView(console) if console.is_terminal else PlainView(console)


class TerminalView:
    """One bar over all runs and one line for each that is under way, below what was said."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def say(self, line: str, style: str = "") -> None:
        self._live.console.print(Text(line, style))

    def note(self, line: str) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(Group(_overall(snapshot), _runs(snapshot.rows)), refresh=True)

    def close(self) -> None:
        self._live.stop()


class PlainView:
    """Lines for a log file: what is said, and how things stand every 15 seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = time.monotonic() + PLAIN_SECONDS

    def say(self, line: str, style: str = "") -> None:
        self._console.print(Text(line), soft_wrap=True)

    def note(self, line: str) -> None:
        self.say(line)

    def show(self, snapshot: Snapshot) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_SECONDS
        self.say(f"[{snapshot.counts}] {_summary(snapshot)}")

    def close(self) -> None:
        pass


def clock(seconds: float | None) -> str:
    """`1:32`, `1:02:05` or `3 d 04 h`."""
    if seconds is None:
        return "–"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour:02d} h"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def rate(tokens_per_second: float | None) -> str:
    """`870`, `20.1k` or `1.3M`."""
    if tokens_per_second is None:
        return "–"
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if tokens_per_second >= size:
            return f"{tokens_per_second / size:.1f}{unit}"
    return f"{tokens_per_second:.0f}"


def percent(work: float) -> str:
    """A share of work, rounded down."""
    return f"{int(100 * work)} %"


def _summary(snapshot: Snapshot) -> str:
    speed = snapshot.tokens_per_second()
    parts = [percent(snapshot.work)]
    parts += [f"{rate(speed)} tokens/s"] if speed else []
    parts += ["estimating the time left" if snapshot.left is None else _about(snapshot.left)]
    return " · ".join(parts)


def _about(left: float) -> str:
    return f"about {clock(left)} left"


def _overall(snapshot: Snapshot) -> Table:
    lines = Table.grid(expand=True)
    lines.add_row(ProgressBar(total=1.0, completed=snapshot.work))
    lines.add_row(f"{snapshot.counts} · {_summary(snapshot)}")
    return lines


def _runs(rows: Sequence[Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("run", no_wrap=True, min_width=20)
    table.add_column("phase", no_wrap=True, min_width=10)
    for name in ("loss", "tokens/s", "done", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        loss = "–" if row.loss is None else f"{row.loss:.3f}"
        speed, left = rate(row.tokens_per_second), clock(row.left)
        table.add_row(Text(row.name), row.phase, loss, speed, percent(row.work), left)
    return table
