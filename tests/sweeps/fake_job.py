"""A job that does what `behaviour.txt` in its run directory says, and logs its start and end.

Behaviours: `finish`; `fail` (records a failure); `crash` (exits before it writes a status);
`killed` and `killed once` (SIGKILL, always or only at the first start); `hold` (runs until it gets
a signal); `stubborn` (ignores SIGTERM and has a child process); `meet` (waits until two jobs have
started); `import MODULE`.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from posenc.runs.files import append_jsonl, read_jsonl
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status

DEADLINE = time.monotonic() + 60
LOGGED_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def main() -> int:
    run = RunDirectory(Path(sys.argv[1]))
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: signals.append(signum))
    with lock(run.lock_file, timeout=0) as acquired:
        if not acquired:
            return 3
        return behave(run, (run.path / "behaviour.txt").read_text(), signals)


def behave(run: RunDirectory, behaviour: str, signals: list[int]) -> int:
    events = run.path.parent / "events.jsonl"
    print("working on", run.name, flush=True)
    if behaviour == "crash":
        sys.exit("boom: [no] such thing")
    if behaviour.startswith("import "):
        importlib.import_module(behaviour.removeprefix("import "))
    helper = subprocess.Popen(["sleep", "600"]) if behaviour == "stubborn" else None
    update_status(run, state="running", work_done=0.5)
    event = {"run": run.name, "pid": os.getpid(), "argv": sys.argv[1:], "group": os.getpgid(0)}
    variables = {name: os.environ.get(name) for name in LOGGED_VARIABLES}
    append_jsonl(events, {"event": "start", **event, **variables, "helper": helper and helper.pid})
    if behaviour == "killed once":
        (run.path / "behaviour.txt").write_text("finish")
    if behaviour.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "fail":
        update_status(run, state="failed", error="RunError: the loss is not a number")
        return 1
    while (behaviour == "hold" and not signals) or behaviour == "stubborn":
        pause()
    if signals:
        update_status(run, state="interrupted", error="stopped by a signal")
        return 143
    while behaviour == "meet" and len(starts(events)) < 2:
        pause()
    update_status(run, state="finished", work_done=1.0)
    append_jsonl(events, {"event": "end", **event})
    return 0


def starts(events: Path) -> list[dict[str, object]]:
    return [event for event in read_jsonl(events) if event["event"] == "start"]


def pause() -> None:
    time.sleep(0.01)
    if time.monotonic() > DEADLINE:
        sys.exit("the fake job waited too long")


def update_status(run: RunDirectory, **changes: object) -> None:
    Status.read(run.status_file).replace(**changes, updated=time.time()).write(run.status_file)


if __name__ == "__main__":
    sys.exit(main())
