"""The display of a running sweep: live on a terminal, or plain lines in a log file."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from posenc.runs.files import open_regular
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.job_process import JobProcess
from posenc.sweeps.time_left import Pace, run_time_left

PLAIN_INTERVAL_SECONDS = 15.0
"""The time between two progress lines in a log file."""
MAX_NAME_WIDTH = 80
"""The maximum width of a run's name in a table, so that the other columns stay visible."""


@dataclass(frozen=True)
class ProgressRow:
    """One run in progress; `work` is its completed fraction, `loss` its latest training loss."""

    name: str
    phase: str
    work: float
    loss: float | None
    tokens_per_second: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class Snapshot:
    """A sweep in progress; `work` is its completed fraction, `counts` describes the ended runs."""

    rows: Sequence[ProgressRow]
    counts: str
    work: float
    seconds_left: float | None


class PlainDisplay:
    """Plain lines for a log file, with the current progress every 15 seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._next_show = time.monotonic() + PLAIN_INTERVAL_SECONDS

    def print(self, line: str, style: str = "") -> None:
        """Print a permanent line."""
        self.console.print(Text(line), soft_wrap=True)

    def log(self, line: str) -> None:
        """Print a line that is redundant on a live display."""
        self.print(line)

    def show(self, snapshot: Snapshot) -> None:
        """Show the current progress."""
        if time.monotonic() >= self._next_show:
            self._next_show = time.monotonic() + PLAIN_INTERVAL_SECONDS
            self.print(f"[{snapshot.counts}] {_summary(snapshot)}")

    def close(self) -> None:
        """Stop the display."""


class TerminalDisplay(PlainDisplay):
    """A progress bar for the sweep and a line per active run, below the permanent lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def print(self, line: str, style: str = "") -> None:
        self.console.print(Text(line, style))

    def log(self, line: str) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        lines = Table.grid(expand=True)
        lines.add_row(ProgressBar(total=1.0, completed=snapshot.work))
        lines.add_row(f"{snapshot.counts} · {_summary(snapshot)}")
        self._live.update(Group(lines, _progress_table(snapshot.rows)), refresh=True)

    def close(self) -> None:
        self._live.stop()


def create_display(console: Console) -> PlainDisplay:
    return TerminalDisplay(console) if console.is_terminal else PlainDisplay(console)


def format_duration(seconds: float | None) -> str:
    """Return a duration as `1:32`, `1:02:05` or `3 d 04 h`."""
    if seconds is None:
        return "–"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour:02d} h"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def format_rate(tokens_per_second: float | None) -> str:
    """Return a rate as `870`, `20.1k` or `1.3M`."""
    if tokens_per_second is None:
        return "–"
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if tokens_per_second >= size:
            return f"{tokens_per_second / size:.1f}{unit}"
    return f"{tokens_per_second:.0f}"


def format_percent(fraction: float) -> str:
    """Return a fraction as a percentage, rounded down."""
    return f"{int(100 * fraction)}%"


def run_table(text_columns: Sequence[str], number_columns: Sequence[str]) -> Table:
    """Return an empty table with a column for run names, then the named columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("run", no_wrap=True, min_width=20, max_width=MAX_NAME_WIDTH)
    for name in text_columns:
        table.add_column(name, no_wrap=True)
    for name in number_columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def progress_row(process: JobProcess, pace: Pace, now: float) -> ProgressRow:
    """Return the display row of a running process, after updating its pace."""
    status = process.status()
    pace.observe(now, status.work_done)
    starting = status.state == "pending"
    return ProgressRow(
        process.run.name,
        "starting" if starting else status.phase,
        status.work_done,
        None if starting else _latest_loss(process.run.metrics_file),
        None if starting else status.tokens_per_second,
        run_time_left(pace),
    )


def final_message(process: JobProcess, outcome: Status) -> tuple[str, str]:
    """Return the display line for a process that has ended, and the line's style."""
    name = process.run.name
    if outcome.state == "finished":
        return f"✓ {name}  finished in {format_duration(process.elapsed_seconds)}", "green"
    if outcome.state == "failed":
        return f"✗ {name}  failed: {outcome.error} (see {process.run.log_file})", "red"
    reason = f": {outcome.error}" if outcome.error else ""
    return f"■ {name}  interrupted at {format_percent(outcome.work_done)}{reason}", "yellow"


def status_line(run: RunDirectory, status: Status) -> str:
    """Return a run's name and state, and its error if it has one."""
    return f"{run.name}  {status.state}" + (f": {status.error}" if status.error else "")


def _summary(snapshot: Snapshot) -> str:
    parts = [format_percent(snapshot.work)]
    if speed := sum(row.tokens_per_second or 0 for row in snapshot.rows):
        parts.append(f"{format_rate(speed)} tokens/s")
    if snapshot.seconds_left is None:
        parts.append("estimating the time left")
    else:
        parts.append(f"about {format_duration(snapshot.seconds_left)} left")
    return " · ".join(parts)


def _progress_table(rows: Sequence[ProgressRow]) -> Table:
    table = run_table(("phase",), ("loss", "tokens/s", "done", "left"))
    for row in rows:
        loss = "–" if row.loss is None else f"{row.loss:.3f}"
        speed, left = format_rate(row.tokens_per_second), format_duration(row.seconds_left)
        table.add_row(
            Text(row.name), f"{row.phase:10}", loss, speed, format_percent(row.work), left
        )
    return table


def _latest_loss(file: Path) -> float | None:
    """Return the loss in the last complete line of `metrics.jsonl`, or None if there is none."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        with os.fdopen(open_regular(file), "rb") as metrics:
            metrics.seek(max(0, metrics.seek(0, os.SEEK_END) - 1024))
            lines = metrics.read().split(b"\n")[:-1]
        loss = json.loads(lines[-1]).get("loss")
        return loss if isinstance(loss, float) else None
    return None
