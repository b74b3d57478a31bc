"""Calls to a subprocess that reads a JSON request from stdin and responds with JSON Lines."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import redirect_stdout
from typing import Any

from posenc.config.errors import PosencError, RunError, one_line
from posenc.runs.environment import job_environment


def call_module(module: str, request: dict[str, Any], threads: int) -> Generator[Any]:
    """Run `python -m module` and yield its responses as they arrive.

    Closing the generator kills the process. Raises RunError with the last line of stderr if the
    process fails.
    """
    with tempfile.TemporaryFile("w+") as stdin, tempfile.TemporaryFile("w+") as stderr:
        json.dump(request, stdin)
        stdin.seek(0)
        with subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
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
            stderr.seek(0)
            raise RunError(_failure_reason(process.returncode, stderr.read()))


def handle_request(handler: Callable[[dict[str, Any]], Iterable[Any]]) -> int:
    """Print the responses that `handler` yields for the request on stdin; return the exit code.

    All other output is redirected to stderr, so that stdout contains only responses.
    """
    stdout = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            for response in handler(json.load(sys.stdin)):
                print(json.dumps(response), file=stdout, flush=True)
    except (PosencError, ValueError) as error:
        print(one_line(error), file=sys.stderr)
        return 1
    return 0


def _failure_reason(code: int, stderr: str) -> str:
    if code < 0:
        return f"the measurement process was killed (signal {-code}), possibly out of memory"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"the measurement process exited with code {code}"
