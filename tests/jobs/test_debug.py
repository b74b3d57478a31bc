"""Runs with `debug=`: shorter, and kept apart from real results."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from compositions import composer
from posenc.config.errors import ConfigError
from posenc.config.grids import compose_sweep, expand_config
from posenc.config.identity import identity, short_hash
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job_config import compose_job
from posenc.jobs.run_job import run_job
from posenc.runs.run_directory import RunDirectory
from posenc.training.recorder import Recorder
from posenc.training.stop import StopRequest


def jobs(*overrides: str) -> list[DictConfig]:
    sweep = compose_sweep("train", overrides, [])
    return [compose_job(job, composer()) for job in expand_config(sweep, overrides)]


def finish(run: RunDirectory) -> list[dict[str, Any]]:
    assert run_job(run, 1, [], StopRequest(lambda: True)) == FINISHED, run.status().error
    return run.metrics()


def test_fast_replaces_the_size_of_an_experiment() -> None:
    (config,) = jobs(
        "experiment=alibi_extrapolation", "size=paper", "encoding=alibi", "seed=1", "debug=fast"
    )
    assert (config.name, config.train_length, config.tokens) == ("debug", 64, 4 * 512)
    assert config.choices.model == "tiny" and config.claims is None


def test_the_command_line_takes_precedence_over_debug() -> None:
    (config,) = jobs(
        "debug=fast", "model=small", "train_length=128", "evaluation.offsets=[5]", "debug.steps=7"
    )
    assert (config.choices.model, config.train_length) == ("small", 128)
    assert (list(config.evaluation.offsets), config.evaluation.factors) == ([5], None)
    assert config.tokens == 7 * 512


def test_limit_takes_a_fraction_of_the_training_and_validation_tokens() -> None:
    (plain,), (limited,) = (
        jobs("tokens=5e6"),
        jobs("tokens=5e6", "debug=limit", "debug.fraction=0.1"),
    )
    assert limited.tokens == 500_000
    for key in ("every_tokens", "tokens"):
        assert limited.validation[key] == plain.validation[key] / 10


@pytest.mark.parametrize("option", ["fast", "limit", "overfit"])
def test_a_debug_run_never_has_the_hash_of_a_real_one(option: str) -> None:
    (config,) = jobs(f"debug={option}")
    digest = short_hash(identity(config, "f00d"))
    del config.debug
    assert short_hash(identity(config, "f00d")) != digest
    assert config.name == "debug"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["debug=fast", "name=mine"], "name="),
        (["debug=limit", "debug.fraction=2"], "debug.fraction=2"),
        (["debug=overfit", "debug.steps=many"], "debug.steps='many'"),
    ],
)
def test_an_invalid_debug_setting_gives_one_message(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        jobs(*overrides)


def test_overfit_trains_on_the_same_batch_in_every_step(
    small_run: Callable[..., RunDirectory],
) -> None:
    frozen = ["optimizer=adamw", "optimizer.learning_rate=1e-30", "ngram_order=null"]
    repeated = finish(small_run(*frozen, "debug=overfit", "debug.steps=4"))
    plain = finish(small_run(*frozen, "tokens=768", "validation.every_tokens=null"))
    assert len(repeated) == len(plain) == 4
    assert {row["loss"] for row in repeated} == {plain[0]["loss"]}
    assert len({row["loss"] for row in plain}) == 4


def test_fast_detects_anomalies(
    small_run: Callable[..., RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = []
    record = Recorder._record

    def spy(recorder: Recorder, *args: Any) -> None:
        enabled.append(torch.is_anomaly_enabled())
        record(recorder, *args)

    monkeypatch.setattr(Recorder, "_record", spy)
    finish(small_run("debug=fast", "ngram_order=null"))
    assert enabled == [True] * 4
