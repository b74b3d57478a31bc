"""Twelve short runs whose processes are killed at random end as if nothing had happened."""

import subprocess
import sys
from pathlib import Path

import pytest

HAMMER = Path(__file__).parents[2] / "scripts" / "hammer.py"


@pytest.mark.slow
def test_a_sweep_under_a_hammer_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    command = [sys.executable, str(HAMMER), str(tmp_path), "--every", "5", "10"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed" in done.stdout and "killed nothing" not in done.stdout
    assert "all 12 runs as undisturbed, bit for bit" in done.stdout
