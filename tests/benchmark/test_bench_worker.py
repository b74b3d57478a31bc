"""Processes that answer, fail, are killed, and are no longer wanted."""

import os
from pathlib import Path

import pytest

from posenc.benchmark.worker import ask
from posenc.config.errors import RunError

WORKER = """
import os, sys, time
from posenc.benchmark.worker import serve

def answers(request):
    print("a word on stdout")
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

sys.exit(serve(answers))
"""


@pytest.fixture(autouse=True)
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answering.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)


def test_only_answers_come_back() -> None:
    (answer,) = ask("answering", {"number": 21}, threads=3)
    assert (answer["twice"], answer["threads"]) == (42, "3")


@pytest.mark.parametrize(
    ("number", "told"),
    [(1, "^one is too few$"), (2, "killed .signal 9."), (4, "^KeyError: 'unforeseen'$")],
)
def test_a_failure_is_one_message(number: int, told: str) -> None:
    with pytest.raises(RunError, match=told):
        list(ask("answering", {"number": number}, threads=1))


def test_who_stops_listening_ends_the_process() -> None:
    asked = ask("answering", {"number": 3}, threads=1)
    process = next(asked)["process"]
    os.kill(process, 0)
    asked.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
