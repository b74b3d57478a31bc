"""Offline runs of the real W&B client, read back by W&B's own reader."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from posenc.config.components import build
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.runs.evaluation_rows import merge_rows
from posenc.runs.files import append_jsonl
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.git_state import git_state
from posenc.tracking.tracker import NullTracker
from posenc.tracking.wandb_client import PRIVATE_SETTINGS
from posenc.tracking.wandb_config import token_order_digest
from posenc.tracking.wandb_tracker import WandbTracker

TAGS = ["first", "alibi-laptop", "rope", "laptop"]
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def expected_history(rows):
    """The history rows that are logged for rows of a training log."""
    return [
        {
            "_step": row["step"],
            "step": row["step"],
            "tokens": row["tokens"],
            "train/loss": row["loss"],
            "train/learning_rate": row["learning_rate"],
        }
        for row in rows
    ]


@pytest.mark.slow
def test_a_run_is_logged_row_by_row(run, folder, config, rows, evaluation_row, read_offline):
    training_log = rows(1, 30)
    evaluation = [evaluation_row(256, 55.125), evaluation_row(64, 20.0)]
    tracker = WandbTracker(tags=["first"])
    tracker.start(run, config)
    for row in training_log:
        append_jsonl(run.metrics_file, row)
    tracker.log(training_log[:20])
    tracker.log(training_log[20:])
    merge_rows(run.evaluation_file, evaluation)
    tracker.finish(failed=False)

    (file,) = read_offline(folder)
    history = file.history()
    assert history[:30] == expected_history(training_log)
    assert [row.pop("_step") for row in history[30:]] == [31, 32]
    assert history[30:] == [
        {
            "extrapolation/length": row["length"],
            "extrapolation/nonoverlapping/perplexity": row["perplexity"],
            "extrapolation/nonoverlapping/loss": row["loss"],
        }
        for row in reversed(evaluation)
    ]
    summary = file.summary
    assert (summary["state"], summary["exit_code"], summary["tags"]) == ("finished", 0, TAGS)
    assert summary["summary"]["train/loss"] == training_log[-1]["loss"]
    assert summary["summary"]["ppl@L"] == 20.0
    assert summary["summary"]["ppl@4L"] == 55.125
    assert summary["summary"]["extrapolation_ratio"] == 55.125 / 20


@pytest.mark.slow
def test_a_run_has_a_name_a_group_and_keys_to_filter_by(run, folder, config, read_offline):
    tracker = WandbTracker(project="lengths", entity="lab")
    tracker.start(run, config)
    tracker.finish(failed=True)
    (file,) = read_offline(folder)
    assert {key: file.run[key] for key in ("run_id", "display_name", "run_group")} == {
        "run_id": f"alibi-laptop.{run.name}",
        "display_name": run.name,
        "run_group": "alibi-laptop",
    }
    assert (file.run["job_type"], file.run["project"]) == ("train", "lengths")
    assert file.run["entity"] == "lab"
    assert (file.summary["state"], file.summary["exit_code"]) == ("failed", 1)
    remaining: Any = OmegaConf.to_container(config)
    for key in ("train_length", "seed", "tokens", "batch_tokens", "precision", "kernel"):
        del remaining[key]
    remaining["choices"] = {}
    del remaining["planned"]["parameters"], remaining["planned"]["fingerprint"]
    assert file.config["config"] == remaining
    assert {k: v for k, v in file.config.items() if k != "config"} == {
        "encoding": "rope",
        "model": "tiny",
        "data": "text",
        "train_length": 64,
        "seed": 1,
        "tokens": 20000,
        "batch_tokens": 256,
        "precision": "float32",
        "kernel": "auto",
        "variant": "rope spectrum.base=10000.0",
        "series": "rope spectrum.base=10000.0 L=64",
        "data_fingerprint": "f00d",
        "token_order_digest": token_order_digest(config),
        **git_state(),
        "parameters": 830_000,
        "run": run.name,
        "experiment": "alibi-laptop",
    }


def test_a_run_started_from_its_own_folder_has_the_same_id(
    monkeypatch, run, folder, config, read_offline
):
    monkeypatch.chdir(folder)
    tracker = WandbTracker()
    tracker.start(RunDirectory(Path(run.name)), config)
    tracker.finish(failed=False)
    (file,) = read_offline(folder)
    assert file.run["run_id"] == f"alibi-laptop.{run.name}"
    assert file.config["experiment"] == file.run["run_group"] == "alibi-laptop"


def test_metrics_are_plotted_against_tokens_length_or_position(run, folder, config, read_offline):
    tracker = WandbTracker()
    tracker.start(run, config)
    tracker.finish(failed=False)
    metrics = [record["metric"] for record in read_offline(folder)[0].find_records("metric")]
    axes = {m["glob_name"]: m["step_metric"] for m in metrics if "glob_name" in m}
    assert axes == {
        "train/*": "tokens",
        "validation/*": "tokens",
        "extrapolation/*": "extrapolation/length",
        "loss_by_position/*": "loss_by_position/position",
    }


def test_a_private_setting_that_wandb_does_not_know_is_left_out(
    run, folder, config, rows, read_offline, monkeypatch
):
    monkeypatch.setitem(PRIVATE_SETTINGS, "x_setting_of_another_version", 1)
    tracker = WandbTracker()
    tracker.start(run, config)
    tracker.log(rows(1, 3))
    tracker.finish(failed=False)
    (file,) = read_offline(folder)
    assert file.history() == expected_history(rows(1, 3))


@pytest.mark.slow
def test_two_runs_of_one_process_are_two_wandb_runs(run, folder, config, rows, read_offline):
    other = RunDirectory(folder / "alibi-L64-s1-00000000")
    for directory, last in ((run, 3), (other, 5)):
        tracker = WandbTracker()
        tracker.start(directory, config)
        tracker.log(rows(1, last))
        tracker.finish(failed=directory is run)
    files = {file.run["display_name"]: file for file in read_offline(folder)}
    assert files[run.name].history() == expected_history(rows(1, 3))
    assert files[other.name].history() == expected_history(rows(1, 5))
    assert [files[d.name].summary["exit_code"] for d in (run, other)] == [1, 0]


@pytest.mark.slow
def test_a_resumed_offline_run_is_one_run_with_every_step_once(
    run, folder, config, rows, evaluation_row, read_offline
):
    for first, last in ((1, 8), (9, 20)):
        tracker = WandbTracker()
        tracker.start(run, config)
        for row in rows(first, last):
            append_jsonl(run.metrics_file, row)
        tracker.log(rows(first, last))
        tracker.finish(failed=False)
    lengths = {64: 20.0, 256: 30.0, 1024: 60.0}
    evaluation = [evaluation_row(length, value) for length, value in lengths.items()]
    for new in (evaluation[:2], evaluation[2:], []):
        merge_rows(run.evaluation_file, new)
        tracker = WandbTracker()
        tracker.start(run, config)
        tracker.finish(failed=False)

    (file,) = read_offline(folder)
    assert file.path.parent.name == f"run-{run.name}"
    assert file.run["run_id"] == f"alibi-laptop.{run.name}"
    history = file.history()
    assert [row["_step"] for row in history] == list(range(1, 24))
    assert history[:20] == expected_history(rows(1, 20))
    assert [row["extrapolation/length"] for row in history[20:]] == [64, 256, 1024]
    last = file.summary["summary"]
    assert last["ppl@L"] == 20.0
    assert last["extrapolation_ratio"] == 3.0


@pytest.mark.parametrize(
    ("mode", "environment", "expected"),
    [
        (None, None, "offline"),
        (None, "", "offline"),
        (None, "online", "online"),
        (None, "disabled", "disabled"),
        ("offline", "online", "offline"),
        ("disabled", "online", "disabled"),
    ],
)
def test_the_configured_mode_overrides_the_environment(monkeypatch, mode, environment, expected):
    if environment is not None:
        monkeypatch.setenv("WANDB_MODE", environment)
    assert WandbTracker(mode=mode).mode == expected


def test_an_offline_run_ignores_the_environment_of_wandb(
    monkeypatch, run, folder, config, read_offline
):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_RUN_ID", "another")
    monkeypatch.setenv("WANDB_DIR", str(folder / "elsewhere"))
    tracker = WandbTracker(mode="offline")
    tracker.start(run, config)
    tracker.finish(failed=False)
    (file,) = read_offline(folder)
    assert file.run["run_id"] == f"alibi-laptop.{run.name}"
    assert [path.name for path in folder.glob("wandb/*run-*")] == [f"run-{run.name}"]


@pytest.mark.slow
def test_the_console_log_and_the_uncommitted_changes_are_saved(
    run, folder, config, read_offline, tmp_path, monkeypatch
):
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    (repository / "mine.py").write_text("changed = True\n")
    subprocess.run([*git, "add", "mine.py"], check=True)
    run.log_file.write_text("resumed from step 200\ntrained\n")
    for save_code in (False, True):
        tracker = WandbTracker(save_code=save_code)
        tracker.start(run, config)
        tracker.finish(failed=False)
        (file,) = read_offline(folder)
        patches = [path.read_text() for path in file.path.parent.glob("files/*.patch")]
        assert ["changed = True" in patch for patch in patches] == [True] * save_code
        (run.path / "mirror.json").unlink()
    assert "resumed from step 200" in json.dumps(file.records)


@pytest.mark.slow
def test_a_failure_raises_an_alert_and_an_interruption_does_not(run, folder, config, read_offline):
    for error in ("the loss is not finite at step 3 (nan)", None):
        tracker = WandbTracker()
        tracker.start(run, config)
        tracker.finish(failed=True, error=error)
        (file,) = read_offline(folder)
        alerts = [record["alert"] for record in file.find_records("alert")]
        assert [alert["text"] for alert in alerts] == ([error] if error else [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "onlin"}, r"logger.mode=onlin\b.* online, offline, disabled"),
        ({"project": "a/b"}, r"logger.project='a/b'"),
        ({"project": ""}, r"logger.project=''.* 128"),
        ({"tags": ["ok", "t" * 65]}, r"logger.tags\b.*t{65}.* 64"),
    ],
)
def test_invalid_options_are_refused_when_the_tracker_is_created(options, message):
    with pytest.raises(ConfigError, match=message):
        WandbTracker(**options)


def test_an_unknown_mode_in_the_environment_is_an_error(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    with pytest.raises(ConfigError, match="WANDB_MODE=dryrun"):
        WandbTracker()


@pytest.mark.parametrize(
    "tracker", [WandbTracker(mode="disabled"), NullTracker()], ids=["disabled", "none"]
)
def test_without_tracking_nothing_is_written(run, config, rows, tmp_path, tracker):
    before = set(tmp_path.rglob("*"))
    tracker.start(run, config)
    tracker.log(rows(1, 3))
    tracker.finish(failed=False)
    assert set(tmp_path.rglob("*")) == before


def test_wandb_leaves_the_process_unchanged(monkeypatch, run, config):
    monkeypatch.setenv("WANDB_SERVICE", "3-1-unix-/nowhere")
    before = dict(os.environ), sys.exit, sys.excepthook
    tracker = WandbTracker()
    tracker.start(run, config)
    assert (dict(os.environ), sys.exit, sys.excepthook) == before
    tracker.finish(failed=False)
    assert (dict(os.environ), sys.exit, sys.excepthook) == before


def test_the_logger_options_build_the_trackers_with_their_defaults():
    tracker = build(compose("train", ["logger=wandb"]).logger, name="logger")
    assert vars(tracker) == vars(WandbTracker(tags=[]))
    assert isinstance(build(compose("train", ["logger=none"]).logger, name="logger"), NullTracker)


@pytest.mark.slow
def test_leet_shows_all_runs_of_an_experiment(run, folder, config, rows):
    for directory in (run, RunDirectory(folder / "alibi-L64-s1-00000000")):
        tracker = WandbTracker()
        tracker.start(directory, config)
        tracker.log(rows(1, 3))
        tracker.finish(failed=False)
    master, slave = pty.openpty()
    leet = [sys.executable, "-m", "wandb", "leet", str(folder / "wandb")]
    terminal = {**os.environ, "TERM": "xterm-256color", "LINES": "50", "COLUMNS": "200"}
    process = subprocess.Popen(leet, stdin=slave, stdout=slave, stderr=slave, env=terminal)
    expected = [b"2 items", *(path.name.encode() for path in folder.glob("wandb/run-*"))]
    output, deadline = b"", time.monotonic() + 60
    try:
        while not all(text in output for text in expected) and time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                output = ESCAPES.sub(b"", output + os.read(master, 65536))
    finally:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        viewer_pids = children.read_text().split() if children.exists() else []
        process.kill()
        for pid in map(int, viewer_pids):  # it would outlive its parent
            os.kill(pid, signal.SIGKILL)
        process.wait()
        os.close(master)
        os.close(slave)
    assert all(text in output for text in expected), output[-2000:]
