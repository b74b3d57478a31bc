"""What a fragment of a run says of the rows that W&B has already, and when it says nothing."""

import subprocess
import sys

import pytest

from posenc.config.errors import RunError
from posenc.tracking import offline_files as fragments
from posenc.tracking.wandb_run import Wandb


@pytest.fixture
def first(run, folder, config, rows):
    """The `.wandb` file of a first start that logged eight steps."""
    tracker = Wandb()
    tracker.start(run, config)
    tracker.log(rows(1, 8))
    tracker.finish(failed=False)
    (file,) = folder.glob("wandb/*run-*/run-*.wandb")
    return file


@pytest.mark.slow
def test_a_fragment_that_was_cut_off_counts_to_its_last_whole_row(first):
    assert fragments.last_step(first) == 8
    whole = first.read_bytes()
    reached = []
    for size in range(0, len(whole), len(whole) // 8):
        first.write_bytes(whole[:size])
        reached.append(fragments.last_step(first))
    assert reached == sorted(reached)
    assert reached[0] == -1 and 0 < reached[-1] <= 8


def test_a_second_fragment_of_the_same_second_counts(first, run, config):
    """W&B gives its folder the first one's name and a number."""
    first.parent.rename(first.parent.with_name(f"{first.parent.name}-1"))
    tracker = Wandb()
    tracker.start(run, config)
    assert tracker._mirror._sent == 8
    tracker.finish(failed=False)


def test_a_fragment_that_cannot_be_read_is_not_taken_for_an_empty_one(
    first, run, folder, config, rows, inspect, monkeypatch, caplog
):
    whole = first.read_bytes()
    first.write_bytes(b"no fragment of W&B's" * 10)
    with pytest.raises(RunError, match="cannot be read"):
        fragments.last_step(first)
    tracker = Wandb()
    tracker.start(run, config)
    assert "goes on without it" in caplog.text
    tracker.log(rows(1, 20))
    tracker.finish(failed=False)
    first.write_bytes(whole)
    steps = [row["_step"] for fragment in inspect(folder) for row in fragment.history()]
    assert steps == list(range(1, 9))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
def test_a_fragment_is_read_when_nobody_writes_it_any_more(first, run, folder, config):
    holder = "import sys, time; file = open(sys.argv[1], 'ab'); print(flush=True); time.sleep(1)"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(first)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        tracker = Wandb()
        tracker.start(run, config)
        assert other.wait(timeout=0) == 0
    tracker.finish(failed=False)


def test_a_fragment_that_stays_open_is_left_alone(first, monkeypatch, run, config, caplog):
    monkeypatch.setattr(fragments, "SETTLE_SECONDS", 0.2)
    with first.open("ab"):
        Wandb().start(run, config)
    assert "still writing" in caplog.text
