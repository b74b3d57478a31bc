"""How far W&B has a run already: by its server's word, or by what its client left on this disk."""

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

READ_SECONDS = 60
SETTLE_SECONDS = 30  # how long W&B's process may take to end after the run whose rows it writes
POLL_SECONDS = 0.1


def mirrored_step(run: "Run") -> int:
    """The last step that the run has on the server it is open on; offline, in its own folder."""
    if not run.offline:
        return run.starting_step - 1
    own, folder = Path(run.settings.sync_dir), Path(run.settings.wandb_dir)
    files = folder.glob(f"*run-*-{run.id}*/run-{run.id}.wandb")  # W&B numbers those of a second
    newest_first = sorted(files, key=lambda file: file.parent.name.partition("run-")[2])[::-1]
    reached = (_settled_step(file) for file in newest_first if file.parent != own)
    return next((step for step in reached if step >= 0), -1)


def last_step(file: Path) -> int:
    """The last step in a `.wandb` file as W&B's own reader prints it; -1 where it has none.

    A file that was cut off is read to its last whole record; RunError where the reader fails.
    """
    command = [sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_SECONDS)
    if done.returncode:
        raise RunError(f"{file.name} cannot be read: {one_line(done.stderr)}")
    records = [json.loads(line) for line in done.stdout.splitlines() if '"history"' in line]
    steps = [r["history"]["item"]["_step"] for r in records if r["type"] == "history"]
    return max(steps, default=-1)


def _settled_step(file: Path) -> int:
    """`last_step` once the process is gone that writes rows of a run after its death."""
    until = time.monotonic() + SETTLE_SECONDS
    while _is_open(file):
        if time.monotonic() > until:
            raise RunError(f"another process is still writing {file.name}")
        time.sleep(POLL_SECONDS)
    return last_step(file)


def _is_open(file: Path) -> bool:
    """Whether a process has it open, as far as the system tells: Linux does, others find nothing.

    Processes end, and belong to others, while they are looked at.
    """
    path = str(file.resolve())
    for link in iglob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == path:
                return True
    return False
