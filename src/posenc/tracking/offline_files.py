"""Finds the last step of a run that was logged to W&B's server or to offline run files."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.config.errors import RunError, one_line

if TYPE_CHECKING:
    from wandb import Run

READ_TIMEOUT = 60  # seconds for `wandb leet inspect` to read a file
CLOSE_TIMEOUT = 30  # seconds for wandb's service to close the file of a killed run
POLL_INTERVAL = 0.1  # seconds


def last_logged_step(run: "Run") -> int:
    """Return the last step of an online run on its server, or of an offline run in its files.

    Returns -1 if there is none. Raises RunError if an offline run file cannot be read.
    """
    if not run.offline:
        return run.starting_step - 1
    current_folder = Path(run.settings.sync_dir)
    files = offline_run_files(Path(run.settings.wandb_dir), run.id)
    newest_first = sorted(files, key=lambda file: file.parent.name.partition("run-")[2])[::-1]
    steps = (_last_step_once_closed(f) for f in newest_first if f.parent != current_folder)
    return next((step for step in steps if step >= 0), -1)


def offline_run_files(wandb_folder: Path, run_id: str) -> list[Path]:
    """Return the offline run files (`.wandb`) of a W&B run, one for each time it was started."""
    # wandb appends a number to the folder name if a run starts twice within a second
    return sorted(wandb_folder.glob(f"*run-*-{run_id}*/run-{run_id}.wandb"))


def last_step(file: Path) -> int:
    """Return the last step in an offline run file (`.wandb`), or -1 if it has no rows.

    A truncated file is read up to its last complete record. Raises RunError if it cannot be read.
    """
    command = [sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=READ_TIMEOUT)
    if process.returncode:
        raise RunError(f"{file.name} cannot be read: {one_line(process.stderr)}")
    records = [json.loads(line) for line in process.stdout.splitlines() if '"history"' in line]
    steps = [r["history"]["item"]["_step"] for r in records if r["type"] == "history"]
    return max(steps, default=-1)


def _last_step_once_closed(file: Path) -> int:
    """Return the last step after wandb's service has closed the file.

    The service may outlive a killed run. Raises RunError if it keeps the file open too long.
    """
    deadline = time.monotonic() + CLOSE_TIMEOUT
    while _is_open(file):
        if time.monotonic() > deadline:
            raise RunError(f"another process is still writing {file.name}")
        time.sleep(POLL_INTERVAL)
    return last_step(file)


def _is_open(file: Path) -> bool:
    """Whether any process has the file open; always False without /proc (outside Linux)."""
    path = str(file.resolve())
    for link in iglob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):  # the process has ended or belongs to another user
            if os.readlink(link) == path:
                return True
    return False
