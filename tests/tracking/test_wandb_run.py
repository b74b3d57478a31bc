"""Offline runs of the real client, read back by W&B's own reader."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.config.components import build
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.runs.evaluation_rows import merge_rows
from posenc.runs.metrics import MetricsLog
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.identity import git_state, token_stream
from posenc.tracking.null_tracker import NullTracker
from posenc.tracking.wandb_run import Wandb

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def logged(rows):
    """Rows of a training log as a dashboard has them."""
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


def test_a_run_is_mirrored_row_by_row(run, folder, config, rows, measured, inspect):
    sent, curve = rows(1, 30), [measured(256, 55.125), measured(64, 20.0)]
    tracker = Wandb(tags=["first"])
    tracker.start(run, config)
    for row in sent:
        MetricsLog(run.metrics_file).append(row)
    tracker.log(sent[:20])
    tracker.log(sent[20:])
    merge_rows(run.evaluation_file, curve)
    tracker.finish(failed=False)

    (fragment,) = inspect(folder)
    history = fragment.history()
    assert history[:30] == logged(sent)
    assert [row.pop("_step") for row in history[30:]] == [31, 32]
    assert history[30:] == [
        {
            "extrapolation/length": row["length"],
            "extrapolation/nonoverlapping/perplexity": row["perplexity"],
            "extrapolation/nonoverlapping/loss": row["loss"],
        }
        for row in reversed(curve)
    ]
    summary = fragment.summary
    assert (summary["state"], summary["exit_code"], summary["tags"]) == ("finished", 0, ["first"])
    assert summary["summary"]["train/loss"] == sent[-1]["loss"]
    assert summary["summary"]["ppl@L"] == 20.0
    assert summary["summary"]["ppl@4L"] == 55.125
    assert summary["summary"]["extrapolation_ratio"] == 55.125 / 20


def test_a_run_is_named_grouped_and_filterable(run, folder, config, inspect):
    tracker = Wandb(project="lengths", entity="lab")
    tracker.start(run, config)
    tracker.finish(failed=True)
    (fragment,) = inspect(folder)
    assert {key: fragment.run[key] for key in ("run_id", "display_name", "run_group")} == {
        "run_id": "alibi-laptop.rope-L64-s1-3f9c2a1b",
        "display_name": "rope-L64-s1-3f9c2a1b",
        "run_group": "alibi-laptop",
    }
    assert (fragment.run["job_type"], fragment.run["project"]) == ("train", "lengths")
    assert fragment.run["entity"] == "lab"
    assert (fragment.summary["state"], fragment.summary["exit_code"]) == ("failed", 1)
    assert fragment.config.pop("config") == OmegaConf.to_container(config)
    assert {k: v for k, v in fragment.config.items() if k != "config"} == {
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
        "token_stream": token_stream(config),
        **git_state(),
        "parameters": 830_000,
        "run": "rope-L64-s1-3f9c2a1b",
        "experiment": "alibi-laptop",
    }


def test_a_run_called_from_its_own_folder_has_the_same_identity(
    monkeypatch, run, folder, config, inspect
):
    monkeypatch.chdir(folder)
    tracker = Wandb()
    tracker.start(RunDirectory(Path(run.name)), config)
    tracker.finish(failed=False)
    (fragment,) = inspect(folder)
    assert fragment.run["run_id"] == f"alibi-laptop.{run.name}"
    assert fragment.config["experiment"] == fragment.run["run_group"] == "alibi-laptop"


def test_curves_have_their_own_axes(run, folder, config, inspect):
    tracker = Wandb()
    tracker.start(run, config)
    tracker.finish(failed=False)
    metrics = [record["metric"] for record in inspect(folder)[0].of("metric")]
    axes = {m["glob_name"]: m["step_metric"] for m in metrics if "glob_name" in m}
    assert axes == {
        "train/*": "tokens",
        "validation/*": "tokens",
        "extrapolation/*": "extrapolation/length",
        "loss_by_position/*": "loss_by_position/position",
    }


def test_two_runs_of_one_process_are_two_runs(run, folder, config, rows, inspect):
    other = RunDirectory(folder / "alibi-L64-s1-00000000")
    for directory, last in ((run, 3), (other, 5)):
        tracker = Wandb()
        tracker.start(directory, config)
        tracker.log(rows(1, last))
        tracker.finish(failed=directory is run)
    fragments = {fragment.run["display_name"]: fragment for fragment in inspect(folder)}
    assert fragments[run.name].history() == logged(rows(1, 3))
    assert fragments[other.name].history() == logged(rows(1, 5))
    assert [fragments[d.name].summary["exit_code"] for d in (run, other)] == [1, 0]


def test_a_resumed_run_is_one_run_with_every_step_once(
    run, folder, config, rows, measured, inspect
):
    metrics = MetricsLog(run.metrics_file)
    for first, last in ((1, 8), (9, 20)):
        tracker = Wandb()
        tracker.start(run, config)
        for row in rows(first, last):
            metrics.append(row)
        tracker.log(rows(first, last))
        tracker.finish(failed=False)
    curve = [measured(64, 20.0), measured(256, 30.0), measured(1024, 60.0)]
    for new in (curve[:2], curve[2:], []):
        merge_rows(run.evaluation_file, new)
        tracker = Wandb()
        tracker.start(run, config)
        tracker.finish(failed=False)

    fragments = inspect(folder)
    assert {fragment.run["run_id"] for fragment in fragments} == {f"alibi-laptop.{run.name}"}
    history = [row for fragment in fragments for row in fragment.history()]
    assert [row["_step"] for row in history] == list(range(1, 24))
    assert history[:20] == logged(rows(1, 20))
    assert [row["extrapolation/length"] for row in history[20:]] == [64, 256, 1024]
    last = fragments[-1].summary["summary"]
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
def test_the_config_decides_before_the_environment(monkeypatch, mode, environment, expected):
    if environment is not None:
        monkeypatch.setenv("WANDB_MODE", environment)
    assert Wandb(mode=mode).mode == expected


def test_an_offline_run_stays_offline_whatever_the_environment_says(
    monkeypatch, run, folder, config, inspect
):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_RUN_ID", "another")
    monkeypatch.setenv("WANDB_DIR", str(folder / "elsewhere"))
    tracker = Wandb(mode="offline")
    tracker.start(run, config)
    tracker.finish(failed=False)
    (fragment,) = inspect(folder)
    assert fragment.run["run_id"] == f"alibi-laptop.{run.name}"
    assert [path.name[:12] for path in folder.glob("wandb/*run-*")] == ["offline-run-"]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"mode": "onlin"}, r"logger.mode=onlin: .*nearest: online"),
        ({"project": "a/b"}, r"logger.project='a/b'"),
        ({"project": ""}, r"logger.project=''.*1 to 128"),
        ({"tags": ["ok", "t" * 65]}, r"logger.tags: 't+' .* 64"),
    ],
)
def test_knobs_that_wandb_would_refuse_are_refused_at_once(knobs, message):
    with pytest.raises(ConfigError, match=message):
        Wandb(**knobs)


def test_an_unknown_mode_of_the_environment_is_named(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    with pytest.raises(ConfigError, match="WANDB_MODE=dryrun"):
        Wandb()


@pytest.mark.parametrize(
    "tracker", [Wandb(mode="disabled"), NullTracker()], ids=["disabled", "silent"]
)
def test_without_a_mirror_nothing_is_written(run, config, rows, tmp_path, tracker):
    before = set(tmp_path.rglob("*"))
    tracker.start(run, config)
    tracker.log(rows(1, 3))
    tracker.finish(failed=False)
    assert set(tmp_path.rglob("*")) == before


def test_the_host_process_is_left_as_it_was(monkeypatch, run, config):
    monkeypatch.setenv("WANDB_SERVICE", "3-1-unix-/nowhere")
    before = dict(os.environ), sys.exit, sys.excepthook
    tracker = Wandb()
    tracker.start(run, config)
    assert (dict(os.environ), sys.exit, sys.excepthook) == before
    tracker.finish(failed=False)
    assert (dict(os.environ), sys.exit, sys.excepthook) == before


def test_the_yamls_build_the_trackers_with_their_defaults():
    tracker = build(compose("train", ["logger=wandb"]).logger, name="logger")
    assert vars(tracker) == vars(Wandb(tags=[]))
    assert isinstance(build(compose("train", ["logger=none"]).logger, name="logger"), NullTracker)


@pytest.mark.slow
def test_leet_shows_all_runs_of_an_experiment(run, folder, config, rows):
    for directory in (run, RunDirectory(folder / "alibi-L64-s1-00000000")):
        tracker = Wandb()
        tracker.start(directory, config)
        tracker.log(rows(1, 3))
        tracker.finish(failed=False)
    master, slave = pty.openpty()
    leet = [sys.executable, "-m", "wandb", "leet", str(folder / "wandb")]
    terminal = {**os.environ, "TERM": "xterm-256color", "LINES": "50", "COLUMNS": "200"}
    process = subprocess.Popen(leet, stdin=slave, stdout=slave, stderr=slave, env=terminal)
    wanted = [b"2 items", *(path.name[:27].encode() for path in folder.glob("wandb/offline-*"))]
    shown, until = b"", time.monotonic() + 60
    try:
        while not all(text in shown for text in wanted) and time.monotonic() < until:
            if select.select([master], [], [], 0.2)[0]:
                shown = ESCAPES.sub(b"", shown + os.read(master, 65536))
    finally:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        viewer = children.read_text().split() if children.exists() else []
        process.kill()
        for pid in map(int, viewer):  # would outlive it
            os.kill(pid, signal.SIGKILL)
        process.wait()
        os.close(master)
        os.close(slave)
    assert all(text in shown for text in wanted), shown[-2000:]
