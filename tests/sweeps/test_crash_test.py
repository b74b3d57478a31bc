"""Twelve short runs whose processes are killed at random end as if uninterrupted."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_test.py"


@pytest.mark.slow
def test_a_sweep_with_kills_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--every", "5", "10"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed: nothing" not in done.stdout
    assert "all 12 runs are bit-identical" in done.stdout
