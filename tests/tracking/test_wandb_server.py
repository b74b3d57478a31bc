"""A server that works, servers that fail, clients that die: one run, or one warning and no loss."""

import json
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from posenc.cli import main
from posenc.runs.evaluation_rows import merge_positions, merge_rows
from posenc.runs.metrics import MetricsLog
from posenc.tracking import session
from posenc.tracking.media import IMAGE, TABLE
from posenc.tracking.session import FINISH_SECONDS
from posenc.tracking.wandb_run import Wandb

HANG = pytest.param("hang", marks=pytest.mark.slow)
CURVE = "extrapolation/nonoverlapping"


def warnings_of(caplog) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("posenc")]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


def tracked(run, config, sent, failed=False, mode: str | None = "online") -> None:
    tracker = Wandb(mode=mode, tags=["first"])
    tracker.start(run, config)
    for row in sent:
        MetricsLog(run.metrics_file).append(row)
    tracker.log(sent)
    tracker.finish(failed)


def mirror_of(run) -> list[dict]:
    """What a run's history has to be, written down from its files once more."""
    trained = [
        {
            "_step": row["step"],
            "step": row["step"],
            "tokens": row["tokens"],
            "train/loss": row["loss"],
            "train/learning_rate": row["learning_rate"],
        }
        for row in run.metrics()
    ]
    measured = [
        {
            "_step": len(trained) + i,
            "extrapolation/length": row["length"],
            f"{CURVE}/perplexity": row["perplexity"],
            f"{CURVE}/loss": row["loss"],
        }
        for i, row in enumerate(run.rows(), 1)
    ]
    return [*trained, *measured]


def synced(folder) -> int:
    return main(["sync", folder.name, f"outputs_dir={folder.parent}"])


@pytest.fixture(autouse=True)
def short_finish(monkeypatch):
    monkeypatch.setattr(session, "FINISH_SECONDS", 5)


def test_online_a_resumed_run_is_one_run_with_every_step_once(
    server, run, config, rows, measured, caplog
):
    tracked(run, config, rows(1, 4), failed=True)
    tracked(run, config, rows(5, 9))
    merge_rows(run.evaluation_file, [measured(64, 20.0), measured(256, 30.0)])
    for _ in range(2):
        tracked(run, config, [])
    ((name, kept),) = server.runs.items()
    assert name == f"alibi-laptop.{run.name}"
    told = {key: kept[key] for key in ("group", "job_type", "name", "tags", "exit_code")}
    assert told == {
        "group": "alibi-laptop",
        "job_type": "train",
        "name": run.name,
        "tags": ["first"],
        "exit_code": 0,
    }
    assert server.history(name) == mirror_of(run)
    summary = server.summary(name)
    assert (summary["train/loss"], summary["ppl@4L"]) == (7.0 / 9, 30.0)
    assert summary["extrapolation_ratio"] == 1.5
    assert kept["config"]["config"] == OmegaConf.to_container(config)
    assert kept["config"]["encoding"] == "rope"
    assert warnings_of(caplog) == []


def test_loss_by_position_arrives_as_a_curve_a_table_and_an_image(
    server, run, config, rows, measured
):
    sums, counts = np.arange(1.0, 257.0), np.full(256, 2)
    row = measured(256, 30.0, protocol="by_position")
    merge_rows(run.evaluation_file, [row])
    arrays = {"f00d.validation.256.sum": sums, "f00d.validation.256.count": counts}
    merge_positions(run.positions_file, arrays)
    for _ in range(2):
        tracked(run, config, [])
    ((name, kept),) = server.runs.items()
    *points, media = server.history(name)
    at = {p["loss_by_position/position"]: p["loss_by_position/loss"] for p in points[1:]}
    assert at[1.0] == 0.5 and max(at) < 256
    assert sorted(at.values()) == list(at.values())
    assert (media[TABLE]["nrows"], media[TABLE]["ncols"]) == (len(at), 7)
    assert media[IMAGE]["format"] == "png"
    files = {file.split("/")[1]: kept["uploads"][file] for file in kept["uploads"] if "/" in file}
    assert sorted(files) == ["images", "table"]
    assert {row[4]: row[5] for row in json.loads(files["table"])["data"]} == at


@pytest.mark.parametrize("without_wandb", [False, True], ids=["fragments", "files alone"])
def test_sync_brings_a_server_level_and_may_be_repeated(
    server, run, folder, config, rows, measured, without_wandb, capsys
):
    for first, last in ((1, 4), (5, 9)):
        tracked(run, config, rows(first, last), failed=last == 4, mode=None)
    merge_rows(run.evaluation_file, [measured(64, 20.0)])
    run.status().but(state="finished").write(run.status_file)
    if without_wandb:
        shutil.rmtree(folder / "wandb")
        (run.path / "mirror.json").unlink()
    fragments = list(folder.glob("wandb/*"))
    for _ in range(2):
        assert synced(folder) == 0
    merge_rows(run.evaluation_file, [measured(256, 30.0)])
    assert synced(folder) == 0
    assert capsys.readouterr().out == f"{run.name}: uploaded\n" * 3
    assert list(folder.glob("wandb/*")) == fragments
    ((name, kept),) = server.runs.items()
    assert (name, kept["exit_code"]) == (f"alibi-laptop.{run.name}", 0)
    assert server.history(name) == mirror_of(run)
    assert server.summary(name)["extrapolation_ratio"] == 1.5


def test_sync_leaves_out_what_a_resumed_run_will_write_again(server, run, folder, config, rows):
    for row in rows(1, 4):
        MetricsLog(run.metrics_file).append(row)
    assert synced(folder) == 0
    assert server.runs == {}
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints" / f"step-000000003-{16 * '0'}.ckpt").touch()
    assert synced(folder) == 0
    (name,) = server.runs
    assert server.history(name) == mirror_of(run)[:3]


def test_sync_without_a_server_says_what_is_done_and_what_to_do(
    run, folder, config, rows, monkeypatch, capsys
):
    monkeypatch.setattr(session, "START_SECONDS", 1)
    for name in ("WANDB_BASE_URL", "WANDB_API_KEY"):
        monkeypatch.setenv(name, {"WANDB_BASE_URL": "http://127.0.0.1:9"}.get(name, 40 * "0"))
    tracked(run, config, rows(1, 3), mode=None)
    run.status().but(state="finished").write(run.status_file)
    assert synced(folder) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert run.name in message and "0 of 1 runs are done" in message


def test_the_reports_figures_are_uploaded_once(server, run, folder, config, rows, capsys):
    from matplotlib.figure import Figure

    tracked(run, config, rows(1, 2), mode=None)
    (folder / "report").mkdir()
    Figure().savefig(folder / "report" / "perplexity_by_length.png")
    for _ in range(2):
        assert synced(folder) == 0
    assert capsys.readouterr().out.count("figures") == 1
    report = server.runs["alibi-laptop.report"]
    assert (report["group"], report["job_type"]) == ("alibi-laptop", "report")
    (row,) = server.history("alibi-laptop.report")
    assert row["report/perplexity_by_length"]["format"] == "png"


def test_checkpoints_are_artifacts_when_asked_for(server, run, config):
    from posenc.training.checkpoint import save

    def write(path: Path) -> None:
        path.write_bytes(b"weights")

    save(run.checkpoints, 3, write)
    for asked in (False, True):
        tracker = Wandb(mode="online", checkpoints=asked)
        tracker.start(run, config)
        tracker.finish(failed=False)
    ((_, kept),) = server.runs.items()
    assert [(a[0], a[1]) for a in kept["artifacts"]] == [
        ("model", f"alibi-laptop.{run.name}.checkpoint")
    ]


def test_a_trial_of_a_sweep_keeps_the_id_that_the_agent_gave_it(server, run, config, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    for given in ("trial1", "trial2"):
        monkeypatch.setenv("WANDB_RUN_ID", given)
        tracked(run, config, [])
    monkeypatch.delenv("WANDB_SWEEP_ID")
    tracked(run, config, [])
    ((name, kept),) = server.runs.items()
    assert (name, kept["sweep"]) == ("trial1", "s1")


@pytest.mark.parametrize("trouble", [500, 401, HANG, "refused", "no key", "a key of 3"])
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
    assert "offline" in warning and "posenc sync alibi-laptop" in warning and "\n" not in warning
    (fragment,) = inspect(folder)
    assert [row["step"] for row in fragment.history()] == [1, 2, 3, 4, 5]
    assert [path.name[:12] for path in folder.glob("wandb/*run-*")] == ["offline-run-"]


@pytest.mark.parametrize("trouble", [500, pytest.param(401, marks=pytest.mark.slow), HANG, "gone"])
def test_a_server_lost_on_the_way_loses_nothing_that_sync_does_not_bring(
    server, new_server, run, folder, config, rows, measured, inspect, monkeypatch, caplog, trouble
):
    monkeypatch.setattr(session, "FINISH_SECONDS", 1)
    tracker = Wandb(mode="online")
    tracker.start(run, config)
    for row in rows(1, 9):
        MetricsLog(run.metrics_file).append(row)
    tracker.log(rows(1, 3))
    if trouble == "gone":
        server.shutdown()
        server.socket.close()
    server.trouble = trouble
    tracker.log(rows(4, 9))
    merge_rows(run.evaluation_file, [measured(64, 20.0)])
    tracker.finish(failed=False)
    (fragment,) = inspect(folder)
    assert [row["_step"] for row in fragment.history()] == list(range(1, 11))
    assert all("goes on without it" in warning for warning in warnings_of(caplog))

    run.status().but(state="finished").write(run.status_file)
    server = new_server() if trouble == "gone" else server
    server.trouble = None
    assert synced(folder) == 0
    ((name, kept),) = server.runs.items()
    assert server.history(name) == mirror_of(run)
    assert kept["exit_code"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("hangs", ["at once", "on the way"])
def test_a_server_that_hangs_delays_a_run_by_less_than_a_minute(
    server, run, config, rows, monkeypatch, hangs
):
    monkeypatch.setattr(session, "FINISH_SECONDS", FINISH_SECONDS)
    assert session.START_SECONDS + session.FINISH_SECONDS < 60
    begun = time.monotonic()
    server.trouble = "hang" if hangs == "at once" else None
    tracker = Wandb(mode="online")
    tracker.start(run, config)
    server.trouble = "hang"
    for row in rows(1, 9):
        MetricsLog(run.metrics_file).append(row)
    tracker.log(rows(1, 9))
    tracker.finish(failed=False)
    assert time.monotonic() - begun < 60


DYING_CLIENT = """
import logging, os, signal, subprocess, sys
from pathlib import Path
from omegaconf import OmegaConf
from posenc.runs.metrics import MetricsLog
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_run import Wandb

logging.basicConfig(format="%(message)s")
run, config = RunDirectory(Path(sys.argv[1])), OmegaConf.create(sys.argv[2])

def row(step):
    return {"step": step, "tokens": step, "loss": 1.0, "learning_rate": 0.1}

for step in range(1, 2001):
    MetricsLog(run.metrics_file).append(row(step))
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
tracker.finish(failed=False)

again = Wandb()
again.start(run, config)
again.log([row(2000)])
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
    steps = [row["step"] for fragment in inspect(folder) for row in fragment.history()]
    assert steps == list(range(1, 2001))


def test_a_folder_that_cannot_be_written_costs_a_warning(run, folder, config, rows, caplog):
    (folder / "wandb").write_text("in the way")
    tracker = Wandb()
    tracker.start(run, config)
    tracker.log(rows(1, 3))
    tracker.finish(failed=False)
    (warning,) = warnings_of(caplog)
    assert run.name in warning
