"""Each run has one folder in `wandb/`, even after its processes were killed."""

from pathlib import Path

import pytest

from posenc.tracking.wandb_tracker import WandbTracker


@pytest.fixture
def offline_file(run, folder, config, rows) -> Path:
    """The offline run file of a first start that logged eight steps."""
    tracker = WandbTracker()
    tracker.start(run, config)
    tracker.log(rows(1, 8))
    tracker.finish(failed=False)
    (file,) = folder.glob("wandb/run-*/run-*.wandb")
    return file


def test_the_folders_of_killed_processes_are_removed(offline_file, run, folder, config):
    wandb = offline_file.parents[1]
    run_id = f"alibi-laptop.{run.name}"
    for name in (f"offline-run-20260101_000000-{run_id}", f"run-20260101_000000-{run_id}-1"):
        (wandb / name).mkdir()
    others = {wandb / "run-alibi-L64-s1-00000000", wandb / f"offline-run-20260101_000000-{run_id}0"}
    for other in others:
        other.mkdir()
    tracker = WandbTracker()
    tracker.start(run, config)
    tracker.finish(failed=False)
    assert {path for path in wandb.glob("*run-*") if not path.is_symlink()} == {
        offline_file.parent,
        *others,
    }


def test_the_link_to_the_latest_run_is_kept(offline_file):
    latest = offline_file.parents[1] / "latest-run"
    assert latest.is_symlink() and latest.resolve() == offline_file.parent


def test_an_unreadable_file_of_an_earlier_start_is_replaced(
    offline_file, run, folder, config, rows, read_offline
):
    offline_file.write_bytes(b"not a file of W&B's" * 10)
    tracker = WandbTracker()
    tracker.start(run, config)
    tracker.log(rows(1, 20))
    tracker.finish(failed=False)
    (file,) = read_offline(folder)
    assert [row["_step"] for row in file.history()] == list(range(1, 21))
