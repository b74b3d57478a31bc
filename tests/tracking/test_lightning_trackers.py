"""Lightning's loggers, read back from their files, and several loggers for one run."""

import csv
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from compositions import composer
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.jobs.job_config import compose_job
from posenc.runs.evaluation_rows import merge_rows
from posenc.runs.files import append_jsonl, truncate_jsonl
from posenc.tracking.build_tracker import CompositeTracker, build_tracker, wandb_tracker
from posenc.tracking.lightning_trackers import CsvTracker, TensorBoardTracker
from posenc.tracking.tracker import NullTracker
from posenc.tracking.wandb_tracker import WandbTracker

PERPLEXITY = "extrapolation/nonoverlapping/perplexity"


def log_rows(tracker, run, config, rows):
    """Write rows to a run's training log, and log them as a run does at a checkpoint."""
    tracker.start(run, config)
    for row in rows:
        append_jsonl(run.metrics_file, row)
    tracker.log(rows)


def read_csv(run):
    with (run.path / "csv" / "metrics.csv").open() as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def read_tensorboard(run):
    """Map each metric to its steps and values."""
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    scalars: list[str] = events.Tags()["scalars"]  # type: ignore[assignment]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in scalars}


def test_csv_has_a_row_for_each_step_and_evaluation_result(run, config, rows, evaluation_row):
    tracker, log = CsvTracker(), rows(1, 30)
    log_rows(tracker, run, config, log)
    merge_rows(run.evaluation_file, [evaluation_row(256, 55.125), evaluation_row(64, 20.0)])
    tracker.finish(failed=False)
    table = read_csv(run)
    assert table[:30] == [
        {
            "step": row["step"],
            "tokens": row["tokens"],
            "train/loss": pytest.approx(row["loss"]),
            "train/learning_rate": pytest.approx(row["learning_rate"]),
        }
        for row in log
    ]
    results = [(r["step"], r["extrapolation/length"], r[PERPLEXITY]) for r in table[30:]]
    assert results == [(30, 64, 20.0), (30, 256, 55.125)]
    assert f"train_length: {config.train_length}" in (run.path / "csv" / "hparams.yaml").read_text()


def test_tensorboard_plots_training_by_step_and_evaluation_by_length(
    run, config, rows, evaluation_row
):
    tracker, log = TensorBoardTracker(), rows(1, 30)
    log_rows(tracker, run, config, log)
    merge_rows(run.evaluation_file, [evaluation_row(256, 55.125), evaluation_row(64, 20.0)])
    tracker.finish(failed=False)
    scalars = read_tensorboard(run)
    assert scalars["train/loss"] == [(row["step"], pytest.approx(row["loss"])) for row in log]
    assert scalars[PERPLEXITY] == [(64, 20.0), (256, 55.125)]


@pytest.mark.parametrize(
    ("tracker_class", "steps"),
    [
        (CsvTracker, lambda run: [int(row["step"]) for row in read_csv(run)]),
        (TensorBoardTracker, lambda run: [step for step, _ in read_tensorboard(run)["train/loss"]]),
    ],
)
def test_a_resumed_run_has_each_step_once(run, config, rows, tracker_class, steps):
    killed = tracker_class()
    log_rows(killed, run, config, rows(1, 20))
    for row in rows(21, 25):  # after the last checkpoint
        append_jsonl(run.metrics_file, row)
    killed.finish(failed=True)
    assert steps(run) == list(range(1, 26))
    truncate_jsonl(run.metrics_file, 20)  # as a resumed run does
    resumed = tracker_class()
    log_rows(resumed, run, config, rows(21, 30))
    assert steps(run) == list(range(1, 31))
    resumed.finish(failed=False)
    assert steps(run) == list(range(1, 31))


def test_a_value_that_a_callback_logs_keeps_its_name(run, config, rows):
    tracker, (row,) = CsvTracker(), rows(1, 1)
    log_rows(tracker, run, config, [{**row, "lr-AdamW/pg1": 0.5, "stopped_early": True}])
    tracker.finish(failed=False)
    (logged,) = read_csv(run)
    assert logged["lr-AdamW/pg1"] == 0.5 and "stopped_early" not in logged


def test_a_full_disk_does_not_stop_a_run(run, config, rows, caplog, monkeypatch):
    def fail(*args):
        raise OSError("No space left on device")

    tracker = CsvTracker()
    monkeypatch.setattr("pytorch_lightning.loggers.CSVLogger.save", fail)
    log_rows(tracker, run, config, rows(1, 3))
    tracker.finish(failed=False)
    assert "No space left on device" in caplog.text and run.name in caplog.text


def test_several_loggers_log_the_same_run(run, folder, config, rows, read_offline):
    config.logger = compose("train", ["logger=[wandb,csv,tensorboard]", "logger.tags=[a]"]).logger
    tracker = build_tracker(config)
    assert isinstance(tracker, CompositeTracker)
    assert [type(t) for t in tracker.trackers] == [WandbTracker, CsvTracker, TensorBoardTracker]
    log_rows(tracker, run, config, rows(1, 3))
    tracker.finish(failed=False)
    (file,) = read_offline(folder)
    losses = [row["loss"] for row in rows(1, 3)]
    assert [row["train/loss"] for row in file.history()] == losses
    assert [row["train/loss"] for row in read_csv(run)] == losses
    assert [value for _, value in read_tensorboard(run)["train/loss"]] == pytest.approx(losses)


@pytest.mark.parametrize(
    ("option", "tracker_class", "uses_wandb"),
    [
        ("none", NullTracker, False),
        ("csv", CsvTracker, False),
        ("wandb", WandbTracker, True),
        ("[csv,wandb]", CompositeTracker, True),
    ],
)
def test_the_logger_option_selects_one_tracker_or_several(option, tracker_class, uses_wandb):
    config = compose_job([f"logger={option}"], composer())
    assert type(build_tracker(config)) is tracker_class
    assert (wandb_tracker(config.logger) is not None) == uses_wandb


def test_without_tensorboard_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"logger=tensorboard needs.*posenc\[tensorboard\]"):
        build_tracker(compose("train", ["logger=tensorboard"]))
