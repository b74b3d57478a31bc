"""The last logged step is read from offline run files, whole or truncated, once they are closed."""

import subprocess
import sys

import pytest

from posenc.config.errors import RunError
from posenc.tracking import offline_files
from posenc.tracking.wandb_tracker import WandbTracker


@pytest.fixture
def offline_file(run, folder, config, rows):
    """The offline run file of a first start that logged eight steps."""
    tracker = WandbTracker()
    tracker.start(run, config)
    tracker.log(rows(1, 8))
    tracker.finish(failed=False)
    (file,) = folder.glob("wandb/*run-*/run-*.wandb")
    return file


@pytest.mark.slow
def test_a_truncated_file_counts_up_to_its_last_complete_row(offline_file):
    assert offline_files.last_step(offline_file) == 8
    content = offline_file.read_bytes()
    last_steps = []
    for size in range(0, len(content), len(content) // 8):
        offline_file.write_bytes(content[:size])
        last_steps.append(offline_files.last_step(offline_file))
    assert last_steps == sorted(last_steps)
    assert last_steps[0] == -1 and 0 < last_steps[-1] <= 8


def test_a_second_file_of_the_same_second_counts(offline_file, run, config):
    """W&B names its folder like the first one, followed by a number."""
    folder = offline_file.parent
    folder.rename(folder.with_name(f"{folder.name}-1"))
    tracker = WandbTracker()
    tracker.start(run, config)
    assert tracker._mirror.last_step == 8
    tracker.finish(failed=False)


@pytest.mark.slow
def test_an_unreadable_file_is_not_treated_as_empty(
    offline_file, run, folder, config, rows, read_offline, caplog
):
    content = offline_file.read_bytes()
    offline_file.write_bytes(b"not a file of W&B's" * 10)
    with pytest.raises(RunError, match=offline_file.name):
        offline_files.last_step(offline_file)
    tracker = WandbTracker()
    tracker.start(run, config)
    assert run.name in caplog.text
    tracker.log(rows(1, 20))
    tracker.finish(failed=False)
    offline_file.write_bytes(content)
    steps = [row["_step"] for file in read_offline(folder) for row in file.history()]
    assert steps == list(range(1, 9))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see who has a file open")
def test_a_file_is_read_once_no_process_writes_it(offline_file, run, config):
    holder = "import sys, time; file = open(sys.argv[1], 'ab'); print(flush=True); time.sleep(1)"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(offline_file)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        tracker = WandbTracker()
        tracker.start(run, config)
        assert process.wait(timeout=0) == 0
    tracker.finish(failed=False)


def test_a_file_that_stays_open_is_left_alone(offline_file, monkeypatch, run, config, caplog):
    monkeypatch.setattr(offline_files, "CLOSE_TIMEOUT", 0.2)
    with offline_file.open("ab"):
        WandbTracker().start(run, config)
    assert offline_file.name in caplog.text
