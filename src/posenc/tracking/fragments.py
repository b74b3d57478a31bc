"""How far W&B has a run already: by its server's word, or by what its client left on this disk."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wandb import Run

READ_SECONDS = 60


def mirrored_step(run: "Run") -> int:
    """The last step that the run has on the server it is open on; offline, in its own folder."""
    if not run.offline:
        return run.starting_step - 1
    own, folder = Path(run.settings.sync_dir), Path(run.settings.wandb_dir)
    files = folder.glob(f"*run-*-{run.id}/run-{run.id}.wandb")
    newest_first = sorted(files, key=lambda file: file.parent.name.partition("run-")[2])[::-1]
    reached = (last_step(file) for file in newest_first if file.parent != own)
    return next((step for step in reached if step >= 0), -1)


def last_step(file: Path) -> int:
    """The last step in a `.wandb` file as W&B's own reader prints it; -1 where it has none."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_SECONDS)
    records = [json.loads(line) for line in done.stdout.splitlines() if '"history"' in line]
    steps = [r["history"]["item"]["_step"] for r in records if r["type"] == "history"]
    return max(steps, default=-1)
