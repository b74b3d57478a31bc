"""Calls to subprocesses that answer, fail, are killed or are closed early."""

import os
from pathlib import Path

import pytest

from posenc.benchmark.subprocess_calls import call_module
from posenc.config.errors import RunError

MODULE = """
import os, sys, time
from posenc.benchmark.subprocess_calls import handle_request

def answers(request):
    print("a line on stdout")
    threads = os.environ["OMP_NUM_THREADS"]
    yield {"twice": 2 * request["number"], "threads": threads, "process": os.getpid()}
    if request["number"] == 1:
        raise ValueError("one is\\ntoo few")
    if request["number"] == 2:
        os.kill(os.getpid(), 9)
    if request["number"] == 3:
        time.sleep(600)
    if request["number"] == 4:
        raise KeyError("unforeseen")

sys.exit(handle_request(answers))
"""


@pytest.fixture(autouse=True)
def answering_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put MODULE on the path of subprocesses under the name `answering`."""
    (tmp_path / "answering.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_only_answers_are_returned() -> None:
    (answer,) = call_module("answering", {"number": 21}, threads=3)
    assert (answer["twice"], answer["threads"]) == (42, "3")


@pytest.mark.parametrize(
    ("number", "message"),
    [(1, "^one is too few$"), (2, "killed .signal 9."), (4, "^KeyError: 'unforeseen'$")],
)
def test_a_failure_is_reported_in_one_line(number: int, message: str) -> None:
    with pytest.raises(RunError, match=message):
        list(call_module("answering", {"number": number}, threads=1))


def test_closing_the_generator_kills_the_process() -> None:
    answers = call_module("answering", {"number": 3}, threads=1)
    process = next(answers)["process"]
    os.kill(process, 0)
    answers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
