"""scripts/crash_test.py: killed processes change no results."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_test.py"


@pytest.mark.slow
def test_a_sweep_whose_processes_are_killed_has_the_same_results(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--every", "8", "16", "seed=1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "killed: nothing" not in result.stdout
    assert "all 4 runs are bit-identical" in result.stdout
