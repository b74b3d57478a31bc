"""An evaluation with any bias stays within twice the memory of one with none."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "encodings.py"


def peak(encoding: str, length: int) -> float:
    """By how many MB the peak of a process grows in an evaluation at a length."""
    command = [sys.executable, str(BENCHMARK), "evaluate", "--encodings", encoding]
    done = subprocess.run([*command, "--length", str(length)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["alibi", "t5", "fire", "cope", "fox"])
def test_a_bias_takes_no_more_than_twice_the_memory_of_none(encoding: str) -> None:
    none = peak("nope", 8192)
    assert none > 50
    assert peak(encoding, 8192) < 2 * none
