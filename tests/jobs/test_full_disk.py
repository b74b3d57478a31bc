"""A full or read-only disk: the error messages of runs and commands, and how a run resumes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from posenc.jobs.exit_codes import DISK_FULL, FINISHED, INTERRUPTED
from posenc.jobs.job import main as job
from posenc.runs.code_snapshot import snapshot_code
from posenc.runs.files import DISK_FULL_MESSAGE, READ_ONLY_MESSAGE
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
    """Write and return a file that takes all the space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"0" * size)
            except OSError:
                continue
    return filler


def start_training(overrides: list[str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "posenc", "train", *overrides, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "500"},
    )


def train(overrides: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    process = start_training(overrides, *words)
    output, error = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, error)


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Cover the disk with a read-only bind mount of itself.

    The kernel refuses to remount the disk itself read-only while files on it are open for writing;
    these files stay writable.
    """
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_interrupts_a_run_which_resumes_once_there_is_space(
    small_run: Callable[..., RunDirectory], small_job: list[str], small_disk: Path
) -> None:
    longer = ["tokens=76800", "validation.every_tokens=19200"]
    uninterrupted = small_run(*longer, "name=uninterrupted")
    assert job([str(uninterrupted.path)]) == FINISHED
    words = [*longer, f"outputs_dir={small_disk}/o", "checkpoint.every_seconds=0.05"]
    run = small_run(*words)
    snapshot_code(run.path.parent)
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
    second = train(small_job, *words)
    assert second.returncode == 1 and "Traceback" not in second.stderr
    assert DISK_FULL_MESSAGE in second.stderr
    filler.unlink()
    assert train(small_job, *words).returncode == 0
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
    assert [row["sum"] for row in run.rows()] == [row["sum"] for row in uninterrupted.rows()]


def test_a_sweep_that_cannot_be_planned_on_a_full_disk_gets_one_message(
    small_job: list[str], small_disk: Path
) -> None:
    fill(small_disk)
    result = train(small_job, f"outputs_dir={small_disk}/o")
    assert result.returncode == 1
    assert (
        result.stderr.endswith(f"posenc train: {DISK_FULL_MESSAGE}\n")
        and "Traceback" not in result.stderr
    )


def test_a_run_whose_disk_becomes_read_only_is_interrupted_and_resumes(
    small_run: Callable[..., RunDirectory], small_job: list[str], small_disk: Path
) -> None:
    """The disk becomes read-only during training, and again while the resumed run is evaluated."""
    longer = ["tokens=19200", "evaluation.factors=[1,16]", "evaluation.batch_tokens=384"]
    uninterrupted = small_run(*longer, "name=uninterrupted")
    assert job([str(uninterrupted.path)]) == FINISHED
    words = [*longer, f"outputs_dir={small_disk}/o", "checkpoint.every_seconds=0.05"]
    run = small_run(*words)
    run.status().replace(resolved={"threads": 1}).write(run.status_file)
    for logged in ("INFO posenc", "training finished"):
        process = start_training(small_job, *words)
        while not (
            checkpoint.list_checkpoints(run.checkpoints) and logged in run.log_file.read_text()
        ):
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        with read_only(small_disk):
            error = process.communicate()[1]
            assert process.returncode == 1 and "Traceback" not in error, error
            assert error.count(READ_ONLY_MESSAGE) == 1 and " interrupted at " in error, error
            rerun = train(small_job, *words)
            assert rerun.returncode == 2 and "Traceback" not in rerun.stderr
            assert rerun.stderr.count("posenc train: ") == 1
            assert "Read-only file system; make it writable" in rerun.stderr
        assert run.status().state == "interrupted"
    finished = train(small_job, *words)
    assert finished.returncode == 0, finished.stderr
    assert run.metrics_file.read_text() == uninterrupted.metrics_file.read_text()
    assert [row["sum"] for row in run.rows()] == [row["sum"] for row in uninterrupted.rows()]
