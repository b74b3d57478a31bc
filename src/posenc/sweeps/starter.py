"""Starts jobs as forks of itself, so that what all of them import is imported once for a sweep.

`python -m posenc.sweeps.starter FD`: every line of JSON that comes through the socket FD asks for a
process, `{"id", "arguments", "log", "environment"}`; `{"id", "pid"}` and at its end
`{"id", "code"}` go back, a negative code for a signal. When the other side closes, it ends, and
its jobs find themselves without the process that started them. Signals that ask it to end are for
its launcher, which closes.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from posenc.sweeps.exits import ASKED, FAILED

POLL_SECONDS = 0.05


def main(argv: list[str]) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)
    import posenc.sweeps.execute  # noqa: F401 - what every job needs
    from posenc.sweeps.job import main as job

    gc.freeze()  # what is imported stays, and so do the pages that all processes share
    request = _serve(socket.socket(fileno=int(argv[0])))
    if request is None:
        _leave(0)
    _become(request)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)
    _leave(job(request["arguments"]))


def _leave(code: int) -> NoReturn:
    """End without taking apart all that was imported, which takes more than a second."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a full disk has been told by the code already
            stream.flush()
    os._exit(code)


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """None at the end; in a process that was forked, at once, what is asked of it."""
    asked, jobs = b"", {}
    while True:
        if select.select([channel], [], [], POLL_SECONDS)[0]:
            received = channel.recv(1 << 16)
            if not received:
                return None
            *lines, asked = (asked + received).split(b"\n")
            for request in map(json.loads, lines):
                try:
                    pid = os.fork()
                except OSError as error:  # this machine has no room for another process
                    _note(request["log"], f"{error}\n")
                    _tell(channel, id=request["id"], code=FAILED)
                    continue
                if pid == 0:
                    channel.close()
                    return request
                jobs[pid] = request["id"]
                _tell(channel, id=request["id"], pid=pid)
        for pid in list(jobs):
            if (ended := os.waitpid(pid, os.WNOHANG)) != (0, 0):
                code = os.waitstatus_to_exitcode(ended[1])
                _tell(channel, id=jobs.pop(pid), code=code)


def _tell(channel: socket.socket, **answer: int) -> None:
    channel.sendall(json.dumps(answer).encode() + b"\n")


def _note(log: str, line: str) -> None:
    with open(log, "a") as file:
        file.write(line)


def _become(request: dict[str, Any]) -> None:
    """Be what a process would be that was started with that environment and log."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    with open(os.devnull, "rb") as nothing, open(request["log"], "ab") as log:
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source.fileno(), target)


if __name__ == "__main__":
    main(sys.argv[1:])
