"""Online runs: servers that work, fail or hang, clients that die, and `posenc sync` afterwards."""

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
from posenc.runs.evaluation_rows import merge_rows
from posenc.runs.files import append_jsonl
from posenc.runs.loss_arrays import merge_arrays
from posenc.runs.run_directory import RunDirectory
from posenc.tracking import wandb_client
from posenc.tracking.wandb_client import FINISH_TIMEOUT
from posenc.tracking.wandb_media import IMAGE_KEY, SWAP_TABLE_KEY, TABLE_KEY
from posenc.tracking.wandb_tracker import WandbTracker

HANG = pytest.param("hang", marks=pytest.mark.slow)
CODE_NAME = "posenc-code"
CURVE = "extrapolation/nonoverlapping"


def logged_warnings(caplog) -> list[str]:
    records = [record for record in caplog.records if record.name.startswith("posenc")]
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


def track(run, config, rows, failed=False, mode: str | None = "online") -> None:
    tracker = WandbTracker(mode=mode, tags=["first"])
    tracker.start(run, config)
    for row in rows:
        append_jsonl(run.metrics_file, row)
    tracker.log(rows)
    tracker.finish(failed)


def expected_history(run) -> list[dict]:
    """A run's history rows, derived from its files independently of the package."""
    training = [
        {
            "_step": row["step"],
            "step": row["step"],
            "tokens": row["tokens"],
            "train/loss": row["loss"],
            "train/learning_rate": row["learning_rate"],
        }
        for row in run.metrics()
    ]
    evaluation = [
        {
            "_step": len(training) + i,
            "extrapolation/length": row["length"],
            f"{CURVE}/perplexity": row["perplexity"],
            f"{CURVE}/loss": row["loss"],
        }
        for i, row in enumerate(run.rows(), 1)
    ]
    return [*training, *evaluation]


def sync(folder) -> int:
    return main(["sync", folder.name, f"outputs_dir={folder.parent}"])


@pytest.fixture(autouse=True)
def short_finish_timeout(monkeypatch):
    monkeypatch.setattr(wandb_client, "FINISH_TIMEOUT", 5)


@pytest.mark.slow
def test_a_resumed_online_run_is_one_run_with_every_step_once(
    server, run, config, rows, evaluation_row, caplog
):
    track(run, config, rows(1, 4), failed=True)
    track(run, config, rows(5, 9))
    merge_rows(run.evaluation_file, [evaluation_row(64, 20.0), evaluation_row(256, 30.0)])
    for _ in range(2):
        track(run, config, [])
    ((run_id, saved),) = server.runs.items()
    assert run_id == f"alibi-laptop.{run.name}"
    fields = {key: saved[key] for key in ("group", "job_type", "name", "tags", "exit_code")}
    assert fields == {
        "group": "alibi-laptop",
        "job_type": "train",
        "name": run.name,
        "tags": ["first", "alibi-laptop", "rope", "laptop"],
        "exit_code": 0,
    }
    assert server.history(run_id) == expected_history(run)
    summary = server.summary(run_id)
    assert (summary["train/loss"], summary["ppl@4L"]) == (7.0 / 9, 30.0)
    assert summary["extrapolation_ratio"] == 1.5
    assert saved["config"]["config"]["optimizer"] == OmegaConf.to_container(config.optimizer)
    assert saved["config"]["encoding"] == "rope"
    assert logged_warnings(caplog) == []


@pytest.mark.slow
def test_loss_by_position_is_logged_as_a_curve_a_table_and_an_image(
    server, run, config, rows, evaluation_row
):
    sums, counts = np.arange(1.0, 257.0), np.full(256, 2)
    loss = {"count": int(counts.sum()), "loss": sums.sum() / counts.sum()}
    row = evaluation_row(256, 30.0, protocol="by_position", **loss)
    merge_rows(run.evaluation_file, [row])
    arrays = {"f00d.validation.256.sum": sums, "f00d.validation.256.count": counts}
    merge_arrays(run.positions_file, arrays)
    for _ in range(2):
        track(run, config, [])
    ((run_id, saved),) = server.runs.items()
    *curves, media = server.history(run_id)
    losses = {r["loss_by_position/position"]: r["loss_by_position/loss"] for r in curves[1:]}
    assert losses[1.0] == 0.5 and max(losses) < 256
    assert sorted(losses.values()) == list(losses.values())
    assert (media[TABLE_KEY]["nrows"], media[TABLE_KEY]["ncols"]) == (len(losses), 7)
    assert media[IMAGE_KEY]["format"] == "png"
    files = {file.split("/")[1]: saved["uploads"][file] for file in saved["uploads"] if "/" in file}
    assert sorted(files) == ["images", "table"]
    assert {row[4]: row[5] for row in json.loads(files["table"])["data"]} == losses


@pytest.mark.slow
def test_swaps_are_logged_once_as_a_table_of_swap_factor_and_length(
    server, run, config, evaluation_row
):
    swaps = {None: 30.0, "yarn": 25.0, "yarn factor=4": 20.0}
    merge_rows(run.evaluation_file, [evaluation_row(256, p, swap=s) for s, p in swaps.items()])
    for _ in range(2):
        track(run, config, [])
    ((run_id, saved),) = server.runs.items()
    tables = [row[SWAP_TABLE_KEY] for row in server.history(run_id) if SWAP_TABLE_KEY in row]
    assert [table["nrows"] for table in tables] == [3]
    (file,) = (f for f in saved["uploads"] if SWAP_TABLE_KEY in f)
    table = json.loads(saved["uploads"][file])
    assert table["columns"][:4] == ["swap", "factor", "length", "perplexity"]
    rows = {tuple(row[:4]) for row in table["data"]}
    assert rows == {("none", None, 256, 30), ("yarn", None, 256, 25), ("yarn", 4, 256, 20)}


@pytest.mark.slow
@pytest.mark.parametrize("without_wandb", [False, True], ids=["offline files", "none"])
def test_sync_uploads_what_is_missing_and_can_be_repeated(
    server, run, folder, config, rows, evaluation_row, without_wandb, capsys
):
    for first, last in ((1, 4), (5, 9)):
        track(run, config, rows(first, last), failed=last == 4, mode=None)
    merge_rows(run.evaluation_file, [evaluation_row(64, 20.0)])
    run.status().replace(state="finished").write(run.status_file)
    if without_wandb:
        shutil.rmtree(folder / "wandb")
        (run.path / "mirror.json").unlink()
    offline_files = list(folder.glob("wandb/*"))
    for _ in range(2):
        assert sync(folder) == 0
    merge_rows(run.evaluation_file, [evaluation_row(256, 30.0)])
    assert sync(folder) == 0
    assert capsys.readouterr().out.count(f"{run.name}: uploaded") == 3
    assert list(folder.glob("wandb/*")) == offline_files
    ((run_id, saved),) = server.runs.items()
    assert (run_id, saved["exit_code"]) == (f"alibi-laptop.{run.name}", 0)
    assert server.history(run_id) == expected_history(run)
    assert server.summary(run_id)["extrapolation_ratio"] == 1.5


def test_sync_omits_rows_that_a_resumed_run_will_write_again(server, run, folder, config, rows):
    for row in rows(1, 4):
        append_jsonl(run.metrics_file, row)
    assert sync(folder) == 0
    assert server.runs == {}
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints" / f"step-000000003-{16 * '0'}.ckpt").touch()
    assert sync(folder) == 0
    (run_id,) = server.runs
    assert server.history(run_id) == expected_history(run)[:3]


def test_sync_uploads_the_other_runs_of_a_folder_with_a_corrupt_one(
    server, run, folder, config, save_config, rows, capsys
):
    changes = {"choices": {"encoding": "alibi"}}
    corrupt = save_config(folder, OmegaConf.merge(config, changes))
    for directory in (corrupt, run):
        for row in rows(1, 3):
            append_jsonl(directory.metrics_file, row)
        directory.status().replace(state="finished").write(directory.status_file)
    corrupt.metrics_file.write_text("[\n")
    assert sync(folder) == 1
    printed = capsys.readouterr()
    assert f"{run.name}: uploaded" in printed.out
    assert corrupt.name in printed.out and "metrics.jsonl" in "".join(printed.out.split())
    assert "1 of 2 runs" in printed.err
    assert list(server.runs) == [f"alibi-laptop.{run.name}"]


def test_sync_without_a_server_prints_one_error_with_the_progress(
    run, folder, config, rows, monkeypatch, capsys
):
    monkeypatch.setattr(wandb_client, "INIT_TIMEOUT", 1)
    for name in ("WANDB_BASE_URL", "WANDB_API_KEY"):
        monkeypatch.setenv(name, {"WANDB_BASE_URL": "http://127.0.0.1:9"}.get(name, 40 * "0"))
    track(run, config, rows(1, 3), mode=None)
    run.status().replace(state="finished").write(run.status_file)
    assert sync(folder) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert run.name in message and "0 of 1 runs" in message


def test_the_figures_of_the_report_are_uploaded_once(server, run, folder, config, rows, capsys):
    from PIL import Image

    track(run, config, rows(1, 2), mode=None)
    (folder / "report").mkdir()
    Image.new("RGB", (4, 3)).save(folder / "report" / "perplexity_by_length.png")
    for _ in range(2):
        assert sync(folder) == 0
    assert capsys.readouterr().out.count("figures") == 1
    report = server.runs["alibi-laptop.report"]
    assert (report["group"], report["job_type"]) == ("alibi-laptop", "report")
    (row,) = server.history("alibi-laptop.report")
    assert row["report/perplexity_by_length"]["format"] == "png"


@pytest.mark.slow
def test_checkpoints_are_uploaded_as_artifacts_only_on_request(server, run, config):
    from posenc.training.checkpoint import save_checkpoint

    def write(path: Path) -> None:
        path.write_bytes(b"weights")

    save_checkpoint(run.checkpoints, 3, write)
    for checkpoints in (False, True):
        tracker = WandbTracker(mode="online", checkpoints=checkpoints)
        tracker.start(run, config)
        tracker.finish(failed=False)
    (saved,) = server.runs.values()
    models = [name for kind, name, _ in saved["artifacts"] if kind == "model"]
    assert models == [f"alibi-laptop.{run.name}.checkpoint"]


@pytest.mark.slow
def test_online_runs_share_the_artifacts_of_their_data_and_their_code(
    server, run, folder, config, caplog
):
    for directory in (run, RunDirectory(folder / "alibi-L64-s1-00000000")):
        track(directory, config, [])
    assert logged_warnings(caplog) == []
    for key, expected in (("used", ("dataset", "text.f00d")), ("artifacts", ("code", CODE_NAME))):
        first, second = (saved[key] for saved in server.runs.values())
        assert first == second
        assert [(kind, name) for kind, name, _ in first] == [expected]


def test_without_save_code_no_code_is_uploaded(server, run, config):
    tracker = WandbTracker(mode="online", save_code=False)
    tracker.start(run, config)
    tracker.finish(failed=False)
    (saved,) = server.runs.values()
    assert saved["artifacts"] == []


@pytest.mark.slow
def test_a_wandb_run_keeps_the_job_type_of_its_first_start(server, run, config):
    for job_type in ("evaluate", "train"):
        tracker = WandbTracker(mode="online")
        tracker.start(run, config, job_type)
        tracker.finish(failed=False)
    (saved,) = server.runs.values()
    assert saved["job_type"] == "evaluate"


@pytest.mark.slow
def test_a_sweep_trial_keeps_the_id_from_the_agent(server, run, config, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    for trial_id in ("trial1", "trial2"):
        monkeypatch.setenv("WANDB_RUN_ID", trial_id)
        track(run, config, [])
    monkeypatch.delenv("WANDB_SWEEP_ID")
    track(run, config, [])
    ((run_id, saved),) = server.runs.items()
    assert (run_id, saved["sweep"]) == ("trial1", "s1")


@pytest.mark.slow
@pytest.mark.parametrize("failure", [500, 401, HANG, "refused", "no key", "short key"])
def test_a_run_that_cannot_start_online_is_logged_offline(
    server, run, folder, config, rows, read_offline, monkeypatch, caplog, failure
):
    monkeypatch.setattr(wandb_client, "INIT_TIMEOUT", 1)
    server.failure = failure
    if failure == "refused":
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    if failure == "no key":
        monkeypatch.delenv("WANDB_API_KEY")
    if failure == "short key":
        monkeypatch.setenv("WANDB_API_KEY", "abc")
    track(run, config, rows(1, 5))
    (warning,) = logged_warnings(caplog)
    assert "offline" in warning and "posenc sync name=alibi" in warning and "\n" not in warning
    (offline_file,) = read_offline(folder)
    assert [row["step"] for row in offline_file.history()] == [1, 2, 3, 4, 5]
    assert [path.name for path in folder.glob("wandb/*run-*")] == [f"run-{run.name}"]


@pytest.mark.slow
@pytest.mark.parametrize("failure", [500, 401, HANG, "gone"])
def test_sync_uploads_everything_after_the_server_was_lost_during_a_run(
    server,
    new_server,
    run,
    folder,
    config,
    rows,
    evaluation_row,
    read_offline,
    monkeypatch,
    caplog,
    failure,
):
    monkeypatch.setattr(wandb_client, "FINISH_TIMEOUT", 1)
    tracker = WandbTracker(mode="online")
    tracker.start(run, config)
    for row in rows(1, 9):
        append_jsonl(run.metrics_file, row)
    tracker.log(rows(1, 3))
    if failure == "gone":
        server.shutdown()
        server.socket.close()
    server.failure = failure
    tracker.log(rows(4, 9))
    merge_rows(run.evaluation_file, [evaluation_row(64, 20.0)])
    tracker.finish(failed=False)
    (offline_file,) = read_offline(folder)
    assert [row["_step"] for row in offline_file.history()] == list(range(1, 11))
    assert all(run.name in w and "posenc sync name=alibi" in w for w in logged_warnings(caplog))

    run.status().replace(state="finished").write(run.status_file)
    server = new_server() if failure == "gone" else server
    server.failure = None
    assert sync(folder) == 0
    ((run_id, saved),) = server.runs.items()
    assert server.history(run_id) == expected_history(run)
    assert saved["exit_code"] == 0


@pytest.mark.slow
def test_a_server_that_is_lost_before_a_table_is_logged_causes_one_warning(
    server, run, config, rows, evaluation_row, monkeypatch, caplog
):
    monkeypatch.setattr(wandb_client, "REQUEST_TIMEOUT", 1)
    tracker = WandbTracker(mode="online")
    tracker.start(run, config)
    for row in rows(1, 3):
        append_jsonl(run.metrics_file, row)
    tracker.log(rows(1, 3))
    server.failure = "hang"
    loss = {"count": 64, "loss": 1.0}
    merge_rows(run.evaluation_file, [evaluation_row(64, 20.0, protocol="by_position", **loss)])
    counts = np.ones(64, np.int64)
    arrays = {"f00d.validation.64.sum": np.ones(64), "f00d.validation.64.count": counts}
    merge_arrays(run.positions_file, arrays)
    tracker.finish(failed=False)
    (warning,) = logged_warnings(caplog)
    assert "the server is not responding" in warning and "posenc sync" in warning


@pytest.mark.slow
@pytest.mark.parametrize("hangs", ["from the start", "during the run"])
def test_a_server_that_hangs_delays_a_run_by_less_than_a_minute(
    server, run, config, rows, monkeypatch, hangs
):
    monkeypatch.setattr(wandb_client, "FINISH_TIMEOUT", FINISH_TIMEOUT)
    assert wandb_client.REQUEST_TIMEOUT + wandb_client.FINISH_TIMEOUT <= 30
    start = time.monotonic()
    server.failure = "hang" if hangs == "from the start" else None
    tracker = WandbTracker(mode="online")
    tracker.start(run, config)
    server.failure = "hang"
    for row in rows(1, 9):
        append_jsonl(run.metrics_file, row)
    tracker.log(rows(1, 9))
    tracker.finish(failed=False)
    assert time.monotonic() - start < 60


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["hang", 500])
def test_a_failed_run_ends_in_time_although_the_server_does_not_accept_its_alert(
    server, run, folder, config, rows, monkeypatch, caplog, failure
):
    monkeypatch.setattr(wandb_client, "REQUEST_TIMEOUT", 1)
    monkeypatch.setattr(wandb_client, "FINISH_TIMEOUT", 3)
    tracker = WandbTracker(mode="online")
    tracker.start(run, config)
    for row in rows(1, 9):
        append_jsonl(run.metrics_file, row)
    tracker.log(rows(1, 9))
    server.failure = failure
    start = time.monotonic()
    tracker.finish(failed=True, error="the loss is not finite")
    assert time.monotonic() - start < 20
    (warning,) = logged_warnings(caplog)
    assert "posenc sync" in warning
    server.failure = None
    run.status().replace(state="finished").write(run.status_file)
    assert sync(folder) == 0
    (run_id,) = server.runs
    assert server.history(run_id) == expected_history(run)


@pytest.mark.slow
def test_the_log_of_a_run_is_uploaded_after_a_failure(
    server, run, folder, config, rows, monkeypatch
):
    monkeypatch.setattr(wandb_client, "FINISH_TIMEOUT", 1)
    tracker = WandbTracker(mode="online")
    tracker.start(run, config)
    run.log_file.write_text("line one\nline two\n")
    for row in rows(1, 3):
        append_jsonl(run.metrics_file, row)
    server.failure = 500
    tracker.finish(failed=False)
    server.failure = None
    run.status().replace(state="finished").write(run.status_file)
    for _ in range(2):
        assert sync(folder) == 0
    ((_, saved),) = server.runs.items()
    assert [line.split()[-1] for line in saved["files"]["output.log"]] == ["one", "two"]


@pytest.mark.slow
def test_a_run_without_a_record_does_not_add_to_the_rows_of_an_earlier_one(
    server, run, folder, config, rows, evaluation_row
):
    track(run, config, rows(1, 4))
    merge_rows(run.evaluation_file, [evaluation_row(64, 20.0)])
    run.status().replace(state="finished").write(run.status_file)
    assert sync(folder) == 0
    (first,) = server.runs
    before = server.history(first)
    (run.path / "mirror.json").unlink()
    merge_rows(run.evaluation_file, [evaluation_row(128, 25.0)])
    for _ in range(2):
        assert sync(folder) == 0
    second = next(name for name in server.runs if name != first)
    assert len(server.runs) == 2 and second.endswith(f".{run.name}")
    assert server.history(second) == expected_history(run)
    assert server.history(first) == before


DYING_CLIENT = """
import logging, os, signal, subprocess, sys
from pathlib import Path
from omegaconf import OmegaConf
from posenc.runs.files import append_jsonl
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_tracker import WandbTracker

logging.basicConfig(format="%(message)s")
run, config = RunDirectory(Path(sys.argv[1])), OmegaConf.create(sys.argv[2])

def row(step):
    return {"step": step, "tokens": step, "loss": 1.0, "learning_rate": 0.1}

for step in range(1, 2001):
    append_jsonl(run.metrics_file, row(step))
tracker = WandbTracker()
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

again = WandbTracker()
again.start(run, config)
again.log([row(2000)])
again.finish(failed=False)
"""


@pytest.mark.slow
def test_a_killed_client_causes_one_warning_and_the_next_run_starts_a_new_client(
    run, folder, config, read_offline
):
    command = [sys.executable, "-c", DYING_CLIENT, str(run.path), OmegaConf.to_yaml(config)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, "")
    (warning,) = process.stderr.splitlines()
    assert run.name in warning and "posenc sync" in warning
    (file,) = read_offline(folder)
    assert [row["step"] for row in file.history()] == list(range(1, 2001))


def test_an_unwritable_folder_causes_one_warning(run, folder, config, rows, caplog):
    (folder / "wandb").write_text("in the way")
    tracker = WandbTracker()
    tracker.start(run, config)
    tracker.log(rows(1, 3))
    tracker.finish(failed=False)
    (warning,) = logged_warnings(caplog)
    assert run.name in warning
