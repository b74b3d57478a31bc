"""What is said of one run: while it is under way, and when its process has ended."""

import json
import os
from pathlib import Path

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.estimate import Pace, run_time_left
from posenc.sweeps.process import JobProcess
from posenc.sweeps.progress import Row, clock, percent


def under_way(process: JobProcess, pace: Pace, now: float) -> Row:
    """How a run stands; its `pace` takes note of it."""
    status = process.status()
    pace.observe(now, status.work_done)
    starting = status.state == "pending"
    return Row(
        process.run.name,
        "starting" if starting else status.phase,
        status.work_done,
        None if starting else _latest_loss(process.run.metrics_file),
        None if starting else status.tokens_per_second,
        run_time_left(pace),
    )


def farewell(process: JobProcess, outcome: Status) -> tuple[str, str]:
    """How a run ended, and the style to say it in."""
    name = process.run.name
    if outcome.state == "finished":
        return f"✓ {name}  finished in {clock(process.seconds)}", "green"
    if outcome.state == "failed":
        return f"✗ {name}  failed: {outcome.error} (see {process.run.log_file})", "red"
    why = f": {outcome.error}" if outcome.error else ""
    return f"■ {name}  interrupted at {percent(outcome.work_done)}{why}", "yellow"


def ending(run: RunDirectory, status: Status) -> str:
    """The same where no more is known than how the run stands."""
    return f"{run.name}  {status.state}" + (f": {status.error}" if status.error else "")


def _latest_loss(file: Path) -> float | None:
    """The loss of the last whole line of `metrics.jsonl`, read from its end."""
    if not file.exists():
        return None
    with file.open("rb") as metrics:
        metrics.seek(max(0, metrics.seek(0, os.SEEK_END) - 1024))
        lines = metrics.read().split(b"\n")[:-1]
    return json.loads(lines[-1]).get("loss") if lines else None
