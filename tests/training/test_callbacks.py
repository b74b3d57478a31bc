"""Lightning callbacks named by `_target_`, in runs of 20 steps in this process."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import Composer, compose
from posenc.config.errors import ConfigError
from posenc.config.identity import identity, short_hash
from posenc.data.tokenizers import load_tokenizer
from posenc.encodings.drope import Drope
from posenc.evaluation.evaluate import load_model
from posenc.jobs.exit_codes import FAILED, FINISHED, INTERRUPTED
from posenc.jobs.job_config import compose_job
from posenc.jobs.run_job import run_job
from posenc.jobs.validate import validate
from posenc.runs.run_directory import RunDirectory
from posenc.training.callbacks import build_callbacks
from posenc.training.checkpoint import latest_checkpoint, list_checkpoints
from posenc.training.stop import StopRequest

PlannedRun = Callable[..., RunDirectory]
SHORT = ["tokens=3840", "validation.every_tokens=960", "model.layers=1", "ngram_order=null"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture
def planned(small_run: Callable[..., RunDirectory], outputs: Path) -> PlannedRun:
    """Plans runs of 20 steps, with a validation every 5, in one folder for all tests."""

    def make(*overrides: str, name: str = "runs") -> RunDirectory:
        return small_run(
            "encoding=alibi", *SHORT, f"outputs_dir={outputs}", f"name={name}", *overrides
        )

    return make


@pytest.fixture
def plain(planned: PlannedRun) -> RunDirectory:
    """A finished run without callbacks; only the first test that uses it trains it."""
    return finish(planned())


@pytest.fixture
def averaged(planned: PlannedRun) -> RunDirectory:
    """A finished run with averaged weights; only the first test that uses it trains it."""
    return finish(planned("callbacks=stochastic_weight_averaging"))


def finish(run: RunDirectory) -> RunDirectory:
    assert run_job(run, 1, [], StopRequest(lambda: True)) == FINISHED, run.status().error
    return run


def interrupt(run: RunDirectory, step: int) -> None:
    """Start a run, and stop it at a step as if its launcher had died."""
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


def test_monitors_add_values_to_the_training_log_and_change_no_result(
    planned: PlannedRun, plain: RunDirectory
) -> None:
    monitored = finish(planned("callbacks=[learning_rate_monitor,device_stats_monitor]"))
    keys = ("step", "loss", "learning_rate", "validation_loss")
    assert columns(monitored, *keys) == columns(plain, *keys)
    last = monitored.metrics()[-1]
    assert last["lr-CombinedOptimizer/pg1"] == last["learning_rate"]
    assert any("DeviceStatsMonitor" in key for key in last)
    assert sums(monitored) == sums(plain)
    assert list(monitored.config().callbacks) == ["learning_rate_monitor", "device_stats_monitor"]


class EveryFifthStep(pl.Callback):
    """Logs the number of completed steps after every fifth step."""

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % 5 == 0:
            pl_module.log("mine", float(trainer.global_step))


def test_a_value_that_a_callback_logs_after_a_step_is_in_the_row_of_the_step(
    planned: PlannedRun,
) -> None:
    target = f"{EveryFifthStep.__module__}.{EveryFifthStep.__qualname__}"
    run = planned(f"+callbacks.mine._target_={target}", f"modules=[{EveryFifthStep.__module__}]")
    assert run_job(run, 1, [EveryFifthStep.__module__], StopRequest(lambda: True)) == FINISHED
    logged = dict(columns(run, "step", "mine"))
    assert [logged[step] for step in (5, 10, 15, 20)] == [5, 10, 15, 20]
    assert logged[4] is None


# No loss is 100 nats lower than the first, so training ends two validations later.
STOPPING_AT_15 = [
    "callbacks=early_stopping",
    "callbacks.early_stopping.min_delta=100",
    "callbacks.early_stopping.patience=2",
]


def test_early_stopping_ends_a_run_that_is_then_evaluated_and_finished(
    planned: PlannedRun, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run = finish(planned(*STOPPING_AT_15))
    validated = [row["step"] for row in run.metrics() if "validation_loss" in row]
    assert validated == [5, 10, 15] and len(run.metrics()) == 15
    checkpoint = latest_checkpoint(run.checkpoints)
    assert checkpoint is not None and checkpoint.step == 15
    assert "a callback ended training after step 15" in caplog.text
    metrics, evaluated = run.metrics(), sums(run)
    assert {length for length, _, _ in evaluated} == {24, 96}
    run.evaluation_file.unlink()
    finish(run)  # evaluates again, without further training
    assert run.metrics() == metrics and sums(run) == evaluated


@pytest.mark.parametrize("step", [8, 15])
def test_an_interrupted_run_stops_early_at_the_same_step(planned: PlannedRun, step: int) -> None:
    run = planned(*STOPPING_AT_15, name=f"stopped{step}")
    interrupt(run, step)
    assert len(finish(run).metrics()) == 15


@pytest.mark.slow
def test_stochastic_weight_averaging_changes_the_saved_weights_and_not_the_training(
    planned: PlannedRun, plain: RunDirectory, averaged: RunDirectory
) -> None:
    only_last_step = "callbacks.stochastic_weight_averaging.start_fraction=0.95"
    unaveraged = finish(planned("callbacks=stochastic_weight_averaging", only_last_step))
    assert columns(plain, "step", "loss") == columns(unaveraged, "step", "loss")
    weights = final_weights(averaged)
    for name, value in final_weights(plain).items():
        torch.testing.assert_close(final_weights(unaveraged)[name], value)
    assert any((weights[k] - v).abs().max() > 1e-4 for k, v in final_weights(plain).items())


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, 17])
def test_an_interrupted_run_has_the_weight_average_of_an_uninterrupted_one(
    planned: PlannedRun, averaged: RunDirectory, step: int
) -> None:
    run = planned("callbacks=stochastic_weight_averaging", name=f"interrupted{step}")
    interrupt(run, step)  # before or during averaging
    weights = final_weights(averaged)
    for name, value in final_weights(finish(run)).items():
        assert torch.equal(value, weights[name]), name


def test_callbacks_change_the_run_hash_and_their_absence_does_not() -> None:
    def digest(*overrides: str) -> str:
        return short_hash(identity(compose("train", ["encoding=rope", *overrides]), "f00d"))

    early = "callbacks=early_stopping"
    hashes = [
        digest(),
        digest(early),
        digest(early, "callbacks.early_stopping.patience=4"),
        digest("callbacks=[early_stopping,learning_rate_monitor]"),
        digest(early, "validation.every_tokens=100"),
    ]
    assert len(set(hashes)) == 5
    assert digest("validation.every_tokens=100") == digest()
    assert "callbacks" not in identity(compose("train", []), "f00d")


def test_a_device_stats_monitor_without_psutil_says_what_to_install(
    configured: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ConfigError, match=r"DeviceStatsMonitor needs psutil.*posenc\[psutil\]"):
        build_callbacks(configured("callbacks=device_stats_monitor"))


@pytest.mark.parametrize(
    ("target", "parameters", "message"),
    [
        ("pytorch_lightning.callbacks.ModelCheckpoint", {}, "checkpoint.every_seconds"),
        ("pytorch_lightning.callbacks.StochasticWeightAveraging", {"swa_lrs": 0.1}, "steps"),
        ("pytorch_lightning.callbacks.RichProgressBar", {}, "posenc status"),
        ("pytorch_lightning.callbacks.EarlyStopping", {"monitor": "val_loss"}, "validation_loss"),
        ("pytorch_lightning.callbacks.EarlyStopping", {"patience": 2}, "has no monitor"),
        ("pytorch_lightning.callbacks.LambdaCallback", {"setup": "print"}, "must be of type"),
        ("pytorch_lightning.callbacks.Timer", {"duration": {"hours": 1}, "x": 1}, "unknown"),
        ("pytorch_lightning.Trainer", {}, "outside posenc"),
        ("torch.optim.SGD", {}, "outside posenc"),
    ],
)
def test_a_callback_that_cannot_work_is_refused(
    small_job: list[str], tmp_path: Path, target: str, parameters: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "conf" / "callbacks"
    folder.mkdir(parents=True)
    OmegaConf.save({"mine": {"_target_": target, **parameters}}, folder / "mine.yaml")
    with pytest.raises(ConfigError, match=message) as raised:
        config = compose_job([*small_job, "callbacks=mine"], Composer("train", [folder.parent]))
        config.modules = []
        validate(config)
    assert "callbacks.mine" in str(raised.value)


def test_a_component_that_is_not_a_lightning_callback_is_refused(
    configured: Callable[..., DictConfig],
) -> None:
    config = configured()
    node = {"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1}
    OmegaConf.update(config, "callbacks", {"mine": node}, force_add=True)
    config.modules = ["torch"]
    with pytest.raises(ConfigError, match=r"callbacks.mine.*Linear, but .*lightning.*Callback"):
        build_callbacks(config)


def test_averaged_weights_are_evaluated_without_the_encoding_that_drope_has_dropped(
    small_run: Callable[..., RunDirectory], outputs: Path
) -> None:
    overrides = [*SHORT, f"outputs_dir={outputs}", "callbacks=stochastic_weight_averaging"]
    run = finish(small_run("encoding=drope", *overrides, "name=drope"))
    config = run.config()
    config.modules = []
    vocab_size = load_tokenizer(run.tokenizer_file, config.planned.tokenizer).vocab_size
    model = load_model(run, config, vocab_size, torch.device("cpu"))
    assert isinstance(model.encoding, Drope) and model.encoding.dropped


def test_a_run_whose_average_has_never_been_updated_fails_whenever_it_is_run(
    planned: PlannedRun,
) -> None:
    target = "pytorch_lightning.callbacks.EMAWeightAveraging"
    run = planned(f"+callbacks.ema._target_={target}", "+callbacks.ema.update_starting_at_step=100")
    for _ in range(2):
        assert run_job(run, 1, [], StopRequest(lambda: True)) == FAILED
        assert "EMAWeightAveraging has averaged no weights" in str(run.status().error)
    assert not list_checkpoints(run.checkpoints) and not run.rows()
