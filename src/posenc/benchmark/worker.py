"""Asking a process of one's own: a request in JSON goes in, answers come out as lines of JSON."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import redirect_stdout
from typing import Any

from posenc.config.errors import PosencError, RunError, one_line
from posenc.runs.environment import job_environment


def ask(module: str, request: dict[str, Any], threads: int) -> Generator[Any]:
    """The answers of `python -m module` as they come; RunError with its last words if it fails.

    A caller that stops, or is stopped, ends the process.
    """
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as said:
        json.dump(request, given)
        given.seek(0)
        with subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=job_environment(threads),
        ) as process:
            assert process.stdout is not None
            try:
                yield from map(json.loads, process.stdout)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            raise RunError(_why(process.returncode, said.read()))


def serve(answers: Callable[[dict[str, Any]], Iterable[Any]]) -> int:
    """A worker's main: the exit code. Only answers go to stdout, whatever else is printed."""
    out = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            for answer in answers(json.load(sys.stdin)):
                print(json.dumps(answer), file=out, flush=True)
    except (PosencError, ValueError) as error:
        print(one_line(error), file=sys.stderr)
        return 1
    return 0


def _why(code: int, said: str) -> str:
    if code < 0:
        return f"its process was killed (signal {-code}), as it is where memory runs out"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else f"its process ended with exit code {code}"
