"""Two machines that share outputs_dir, each with its own hostname, processes and mounts.

They are namespaces of one kernel, so NFS locks are not tested.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory
from posenc.training.checkpoint import list_checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.mount]
BOOT = """
import os, socket, subprocess, sys
hostname, shared, folder, *command = sys.argv[1:]
socket.sethostname(hostname)
subprocess.run(["mount", "--bind", shared, folder], check=True)
os.execvp(command[0], command)
"""


class Machine:
    """`posenc train` in new namespaces, in which `shared` is mounted at `folder`."""

    def __init__(self, hostname: str, shared: Path, folder: Path, words: list[str]) -> None:
        self.hostname, self.log = hostname, folder.with_name(f"{hostname}.log")
        namespaces = ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        boot = [sys.executable, "-c", BOOT, hostname, str(shared), str(folder)]
        train = [sys.executable, "-m", "posenc", "train", *words, f"outputs_dir={folder}"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["unshare", *namespaces, *boot, *train],
                stdout=log,
                stderr=log,
                env=os.environ | {"COLUMNS": "500"},
            )

    def power_off(self) -> None:
        """Kill every process of the machine."""
        self.process.kill()
        self.process.wait()


def test_one_of_two_machines_trains_and_the_other_takes_over_when_it_dies(
    small_run: Callable[..., RunDirectory], small_job: list[str], tmp_path: Path
) -> None:
    longer = ["tokens=76800", "validation.every_tokens=38400"]
    uninterrupted = small_run(*longer, "name=uninterrupted")
    assert job([str(uninterrupted.path)]) == FINISHED
    words = [*small_job[:-1], *longer, "name=shared", "checkpoint.every_seconds=0.2"]
    run = small_run(*words, small_job[-1])
    run.status().replace(resolved={"threads": 1}).write(run.status_file)
    folder = tmp_path / "mounted"
    folder.mkdir()
    machines = {
        name: Machine(name, run.path.parents[1], folder, words) for name in ("first", "second")
    }
    try:
        while not (waiting := [m for m in machines.values() if "waiting" in m.log.read_text()]):
            assert all(m.process.poll() is None for m in machines.values()), logs(machines)
            time.sleep(0.01)
        (waiting_machine,) = waiting
        (holder,) = set(machines.values()) - {waiting_machine}
        while not list_checkpoints(run.checkpoints):
            time.sleep(0.01)
        assert f" on {holder.hostname}); waiting for it" in waiting_machine.log.read_text()
        assert run.status().state == "running"
        holder.power_off()
        assert waiting_machine.process.wait() == 0, logs(machines)
    finally:
        for machine in machines.values():
            machine.power_off()
    assert "resumed from step" in waiting_machine.log.read_text()
    assert run.log_file.read_text().count("training finished") == 1
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
    assert [row["sum"] for row in run.rows()] == [row["sum"] for row in uninterrupted.rows()]


def logs(machines: dict[str, Machine]) -> str:
    return "\n".join(machine.log.read_text() for machine in machines.values())
