"""Lightning callbacks named by `_target_`, in runs of 40 steps in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.identity import identity, run_hash
from posenc.jobs.exit_codes import FINISHED, INTERRUPTED
from posenc.jobs.job_config import compose_job
from posenc.jobs.run_job import run_job
from posenc.jobs.validate import validate
from posenc.runs.run_directory import RunDirectory
from posenc.training.checkpoint import latest_checkpoint
from posenc.training.stop import StopRequest

SmallRun = Callable[..., RunDirectory]


def finish(run: RunDirectory) -> RunDirectory:
    assert run_job(run, 1, [], StopRequest(lambda: True)) == FINISHED, run.status().error
    return run


def interrupt(run: RunDirectory, step: int) -> None:
    """Start a run, and stop it as if its launcher had died at a step."""
    stop = StopRequest(lambda: len(run.metrics()) + 1 < step)
    assert run_job(run, 1, [], stop) == INTERRUPTED
    assert len(run.metrics()) == step


def columns(run: RunDirectory, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(key) for key in keys) for row in run.metrics()]


def sums(run: RunDirectory) -> list[tuple[int, str, float]]:
    return [(row["length"], row["protocol"], row["sum"]) for row in run.rows()]


def final_weights(run: RunDirectory) -> dict[str, torch.Tensor]:
    checkpoint = latest_checkpoint(run.checkpoints)
    assert checkpoint is not None
    return checkpoint.weights()


def test_monitors_log_to_the_rows_of_the_steps_and_change_no_result(small_run: SmallRun) -> None:
    plain = finish(small_run("encoding=alibi"))
    monitored = finish(
        small_run("encoding=alibi", "callbacks=[learning_rate_monitor,device_stats_monitor]")
    )
    keys = ("step", "loss", "learning_rate", "validation_loss")
    assert columns(monitored, *keys) == columns(plain, *keys)
    last = monitored.metrics()[-1]
    assert last["lr-Combined/pg1"] == last["learning_rate"]
    assert any("DeviceStatsMonitor" in key for key in last)
    assert sums(monitored) == sums(plain)
    assert list(monitored.config().callbacks) == ["learning_rate_monitor", "device_stats_monitor"]


def test_early_stopping_ends_a_run_that_is_then_evaluated_and_finished(
    small_run: SmallRun,
) -> None:
    # No loss is 100 nats lower than the first, so that two validations later training ends.
    overrides = ["callbacks=early_stopping", "callbacks.early_stopping.min_delta=100"]
    run = finish(small_run(*overrides, "callbacks.early_stopping.patience=2"))
    validated = [row["step"] for row in run.metrics() if "validation_loss" in row]
    assert validated == [10, 20, 30] and len(run.metrics()) == 30
    checkpoint = latest_checkpoint(run.checkpoints)
    assert checkpoint is not None and checkpoint.step == 30
    metrics, evaluated = run.metrics(), sums(run)
    assert {length for length, _, _ in evaluated} == {24, 96}
    run.evaluation_file.unlink()
    finish(run)  # evaluates again, and does not train on
    assert run.metrics() == metrics and sums(run) == evaluated


def test_an_interrupted_early_stopping_counts_on(small_run: SmallRun) -> None:
    overrides = ["callbacks=early_stopping", "callbacks.early_stopping.min_delta=100"]
    run = small_run(*overrides, "callbacks.early_stopping.patience=2")
    interrupt(run, 15)
    assert len(finish(run).metrics()) == 30


def test_stochastic_weight_averaging_changes_the_saved_weights_and_not_the_training(
    small_run: SmallRun,
) -> None:
    plain = finish(small_run("encoding=alibi"))
    averaged = finish(
        small_run(
            "encoding=alibi",
            "callbacks=stochastic_weight_averaging",
            "callbacks.stochastic_weight_averaging.start_fraction=0.975",  # the last of 40 steps
        )
    )
    assert columns(plain, "step", "loss") == columns(averaged, "step", "loss")
    for name, value in final_weights(plain).items():
        torch.testing.assert_close(final_weights(averaged)[name], value)
    half = small_run("encoding=alibi", "callbacks=stochastic_weight_averaging")
    uninterrupted = final_weights(finish(half))
    assert any((uninterrupted[k] - v).abs().max() > 1e-4 for k, v in final_weights(plain).items())


@pytest.mark.parametrize("step", [10, 35])
def test_an_interrupted_weight_average_is_that_of_an_uninterrupted_run(
    small_run: SmallRun, step: int, tmp_path: Path
) -> None:
    overrides = ["encoding=alibi", "callbacks=stochastic_weight_averaging"]
    weights = final_weights(finish(small_run(*overrides)))
    run = small_run(*overrides, f"outputs_dir={tmp_path}/interrupted")
    interrupt(run, step)  # before and during averaging
    for name, value in final_weights(finish(run)).items():
        assert torch.equal(value, weights[name]), name


def test_callbacks_change_the_hash_and_no_callbacks_keep_it() -> None:
    def digest(*overrides: str) -> str:
        return run_hash(identity(compose("train", ["encoding=rope", *overrides]), "f00d"))

    early = "callbacks=early_stopping"
    hashes = [
        digest(),
        digest(early),
        digest(early, "callbacks.early_stopping.patience=4"),
        digest("callbacks=[early_stopping,learning_rate_monitor]"),
    ]
    assert len(set(hashes)) == 4
    assert "callbacks" not in identity(compose("train", []), "f00d")


@pytest.mark.parametrize(
    ("target", "parameters", "message"),
    [
        ("pytorch_lightning.callbacks.ModelCheckpoint", {}, "checkpoint.every_seconds"),
        ("pytorch_lightning.callbacks.StochasticWeightAveraging", {"swa_lrs": 0.1}, "steps"),
        ("pytorch_lightning.callbacks.RichProgressBar", {}, "posenc status"),
        ("pytorch_lightning.callbacks.EarlyStopping", {"monitor": "val_loss"}, "validation_loss"),
        ("pytorch_lightning.callbacks.EarlyStopping", {"patience": 2}, "monitor missing"),
        ("pytorch_lightning.callbacks.LambdaCallback", {"setup": "print"}, "must be of type"),
        ("pytorch_lightning.callbacks.Timer", {"duration": {"hours": 1}, "x": 1}, "unknown"),
        ("pytorch_lightning.Trainer", {}, "outside posenc"),
        ("torch.optim.SGD", {}, "outside posenc"),
    ],
)
def test_a_callback_that_cannot_work_is_one_message(
    small_job: list[str], tmp_path: Path, target: str, parameters: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "conf" / "callbacks"
    folder.mkdir(parents=True)
    OmegaConf.save({"mine": {"_target_": target, **parameters}}, folder / "mine.yaml")
    with pytest.raises(ConfigError, match=message) as raised:
        config = compose_job([*small_job, "callbacks=mine"], [folder.parent])
        config.modules = []
        validate(config)
    assert "callbacks.mine" in str(raised.value)
