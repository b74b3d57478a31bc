"""A disk that fills up for real: what a run and a command say, and how they go on."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posenc.jobs.exit_codes import DISK_FULL, FINISHED, INTERRUPTED
from posenc.jobs.frozen_code import freeze_code
from posenc.jobs.job import main as job
from posenc.runs.files import DISK_FULL_MESSAGE
from posenc.runs.run_directory import RunDirectory
from posenc.training import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.mount]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"0" * size)
            except OSError:
                continue
    return filler


def command(job: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    typed = [sys.executable, "-m", "posenc", "train", *job, *words]
    return subprocess.run(
        typed, capture_output=True, text=True, env=os.environ | {"COLUMNS": "500"}
    )


def test_it_interrupts_a_run_that_goes_on_once_there_is_space(
    small_run: Callable[..., RunDirectory], small_job: list[str], small_disk: Path
) -> None:
    longer = ["tokens=76800", "validation.every_tokens=19200"]
    undisturbed = small_run(*longer, "name=undisturbed")
    assert job([str(undisturbed.path)]) == FINISHED
    words = [*longer, f"outputs_dir={small_disk}/o", "checkpoint.every_seconds=0.05"]
    run = small_run(*words)
    freeze_code(run.path.parent)
    with run.log_file.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "posenc.jobs.job", str(run.path)], stdout=log, stderr=log
        )
    while not checkpoint.list_checkpoints(run.checkpoints):
        assert process.poll() is None, run.log_file.read_text()
        time.sleep(0.005)
    filler = fill(small_disk)
    assert process.wait() in (DISK_FULL, INTERRUPTED)
    assert run.status().state == "interrupted"
    assert not list(run.checkpoints.glob("writing-*"))
    again = command(small_job, *words)
    assert again.returncode == 1 and "Traceback" not in again.stderr
    assert DISK_FULL_MESSAGE in again.stderr
    filler.unlink()
    assert command(small_job, *words).returncode == 0
    assert run.metrics_file.read_text() == undisturbed.metrics_file.read_text()
    assert [row["sum"] for row in run.rows()] == [row["sum"] for row in undisturbed.rows()]


def test_a_sweep_that_cannot_even_be_planned_says_so_in_one_line(
    small_job: list[str], small_disk: Path
) -> None:
    fill(small_disk)
    said = command(small_job, f"outputs_dir={small_disk}/o")
    assert said.returncode == 1
    assert (
        said.stderr.endswith(f"posenc train: {DISK_FULL_MESSAGE}\n")
        and "Traceback" not in said.stderr
    )
