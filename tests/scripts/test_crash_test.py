"""scripts/crash_test.py: killed processes and read-only file systems change no results.

The environment variable POSENC_KILLS sets the number of kills (200 take about an hour).
POSENC_KILLS_SEED is the seed that determines when and which processes are killed; it is printed.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_test.py"


@pytest.mark.slow
def test_a_sweep_whose_processes_are_killed_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    faults = ["--every", "8", "16"]
    if kills := os.environ.get("POSENC_KILLS"):
        seed = os.environ.get("POSENC_KILLS_SEED") or str(random.randrange(10**6))
        faults = ["--every", "0.5", "16", "--kills", kills, "--seed", seed]
        faults += ["--read-only"] if os.geteuid() == 0 else []
    command = [sys.executable, str(SCRIPT), str(tmp_path), *faults, "seed=1"]
    result = subprocess.run(command, capture_output=True, text=True)
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "faults: none" not in result.stdout
    assert "all 4 runs are bit-identical" in result.stdout
