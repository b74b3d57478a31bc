"""A server that works, servers that fail, clients that die: one run, or one warning and no loss."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.record.metrics import MetricsLog
from posenc.tracking import session
from posenc.tracking.wandb_run import Wandb

WANDB = str(Path(sys.executable).with_name("wandb"))
HANG = pytest.param("hang", marks=pytest.mark.slow)


def warnings_of(caplog) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("posenc")]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


def tracked(run, config, sent, failed=False) -> None:
    tracker = Wandb(mode="online")
    tracker.start(run, config)
    tracker.log(sent)
    tracker.finish(failed)


def test_online_a_resumed_run_is_one_run_with_every_step_once(
    server, run, config, rows, measured, caplog
):
    tracked(run, config, rows(1, 4), failed=True)
    tracked(run, config, rows(5, 9))
    for _ in range(2):
        tracker = Wandb(mode="online")
        tracker.start(run, config)
        tracker.evaluation([measured(64, 20.0), measured(256, 30.0)])
        tracker.finish(failed=False)
    ((name, kept),) = server.runs.items()
    assert (name, kept["group"], kept["exit_code"]) == (
        f"alibi-laptop.{run.name}",
        "alibi-laptop",
        0,
    )
    history = server.history(name)
    assert [row["_step"] for row in history] == list(range(1, 14))
    assert [row["train/loss"] for row in history[:9]] == [row["loss"] for row in rows(1, 9)]
    assert [row["extrapolation/length"] for row in history[9:]] == [64, 256, 64, 256]
    summary = json.loads(kept["files"]["wandb-summary.json"][-1])
    assert (summary["train/loss"], summary["perplexity@256"]) == (7.0 / 9, 30.0)
    assert warnings_of(caplog) == []


def test_offline_fragments_are_uploaded_as_one_run(server, run, folder, config, rows, measured):
    for first, last in ((1, 4), (5, 9)):
        tracker = Wandb()
        tracker.start(run, config)
        tracker.log(rows(first, last))
        tracker.finish(failed=last == 4)
    for row in rows(1, 9):
        MetricsLog(run.metrics_file).append(row)
    tracker = Wandb()
    tracker.start(run, config)
    tracker.evaluation([measured(64, 20.0)])
    tracker.finish(failed=False)
    fragments = [str(path) for path in folder.glob("wandb/offline-run-*")]
    subprocess.run([WANDB, "sync", *fragments], cwd=folder, check=True, capture_output=True)
    ((name, kept),) = server.runs.items()
    assert (name, kept["exit_code"]) == (f"alibi-laptop.{run.name}", 0)
    assert [row["_step"] for row in server.history(name)] == list(range(1, 11))
    summary = json.loads(kept["files"]["wandb-summary.json"][-1])
    assert (summary["train/loss"], summary["perplexity@64"]) == (7.0 / 9, 20.0)


@pytest.mark.parametrize("trouble", ["error 500", HANG, "refused", "no key", "a key of 3"])
def test_a_run_that_cannot_go_online_goes_on_offline(
    server, run, folder, config, rows, inspect, monkeypatch, caplog, trouble
):
    monkeypatch.setattr(session, "START_SECONDS", 1)
    server.trouble = trouble
    if trouble == "refused":
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    if trouble == "no key":
        monkeypatch.delenv("WANDB_API_KEY")
    if trouble == "a key of 3":
        monkeypatch.setenv("WANDB_API_KEY", "abc")
    tracked(run, config, rows(1, 5))
    (warning,) = warnings_of(caplog)
    assert "offline" in warning and "\n" not in warning
    (fragment,) = inspect(folder)
    assert [row["step"] for row in fragment.history()] == [1, 2, 3, 4, 5]
    assert [path.name[:12] for path in folder.glob("wandb/*run-*")] == ["offline-run-"]


@pytest.mark.parametrize("trouble", ["error 500", HANG])
def test_a_server_lost_on_the_way_leaves_every_row_on_disk(
    server, run, folder, config, rows, inspect, monkeypatch, caplog, trouble
):
    monkeypatch.setattr(session, "FINISH_SECONDS", 1)
    tracker = Wandb(mode="online")
    tracker.start(run, config)
    tracker.log(rows(1, 3))
    server.trouble = trouble
    tracker.log(rows(4, 9))
    tracker.finish(failed=False)
    (fragment,) = inspect(folder)
    assert [row["step"] for row in fragment.history()] == list(range(1, 10))
    (warning,) = warnings_of(caplog)
    assert "TimeoutError" in warning


DYING_CLIENT = """
import logging, os, signal, subprocess, sys
from pathlib import Path
from omegaconf import OmegaConf
from posenc.record.rundir import RunDirectory
from posenc.tracking.wandb_run import Wandb

logging.basicConfig(format="%(message)s")
run, config = RunDirectory(Path(sys.argv[1])), OmegaConf.create(sys.argv[2])

def row(step):
    return {"step": step, "tokens": step, "loss": 1.0, "learning_rate": 0.1}

tracker = Wandb()
tracker.start(run, config)
tracker.log([row(1), row(2)])
children = subprocess.run(
    ["pgrep", "-P", str(os.getpid()), "wandb-core"], capture_output=True, text=True, check=True
)
for child in children.stdout.split():
    os.kill(int(child), signal.SIGKILL)
for step in range(3, 2000):
    tracker.log([row(step)])
tracker.evaluation([])
tracker.finish(failed=False)

again = Wandb()
again.start(run, config)
again.log([row(4), row(5)])
again.finish(failed=False)
"""


def test_a_client_that_dies_costs_one_line_and_the_next_run_has_its_own(
    run, folder, config, inspect
):
    command = [sys.executable, "-c", DYING_CLIENT, str(run.path), OmegaConf.to_yaml(config)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("W&B failed") and run.name in warning
    assert [row["step"] for row in inspect(folder)[-1].history()] == [4, 5]


def test_a_folder_that_cannot_be_written_costs_a_warning(run, folder, config, rows, caplog):
    (folder / "wandb").write_text("in the way")
    tracker = Wandb()
    tracker.start(run, config)
    tracker.log(rows(1, 3))
    tracker.finish(failed=False)
    (warning,) = warnings_of(caplog)
    assert run.name in warning
