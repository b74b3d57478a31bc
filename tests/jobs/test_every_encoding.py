"""Every encoding and spectrum trains for 20 steps and is evaluated at 4L (learned: only at L).

The fast tests train one encoding of each kind, the slow ones all others.
"""

import logging
from collections.abc import Callable

import pytest

from compositions import num_layers
from posenc.config.errors import ConfigError
from posenc.config.paths import options
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory

SmallRun = Callable[..., RunDirectory]
FAST = ("alibi", "fox", "learned", "rope", "sinusoidal", "t5")
CHOICES = [
    *[(f"encoding={name}",) for name in sorted(options("encoding"))],
    *[("encoding=rope", f"encoding/spectrum={name}") for name in options("encoding/spectrum")],
    *[
        ("encoding=sinusoidal", f"encoding/spectrum={name}")
        for name in ("linear_frequencies", "geometric_d1")
    ],
    *[(f"encoding={name}", "encoding.trainable=true") for name in ("rope", "sinusoidal", "alibi")],
]


PARAMS = [
    pytest.param(
        choice,
        id=choice[-1].split("=")[-1],
        marks=() if choice in [(f"encoding={name}",) for name in FAST] else pytest.mark.slow,
    )
    for choice in CHOICES
]


@pytest.mark.parametrize("choice", PARAMS)
def test_an_encoding_trains_and_is_evaluated_beyond_its_training_length(
    small_run: SmallRun, choice: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    layers = num_layers(choice[0].removeprefix("encoding="))
    overrides = [*choice, f"model.layers={layers}", "tokens=3840"]
    lengths = [24, 96]
    if choice == ("encoding=learned",):
        with pytest.raises(ConfigError, match=r"96.*24"):
            small_run(*overrides)
        overrides, lengths = [*overrides, "evaluation.factors=[1]"], [24]
    run = small_run(*overrides)
    caplog.set_level(logging.INFO, logger="posenc")
    assert job([str(run.path)]) == FINISHED, run.status().error
    assert len(run.metrics()) == 20
    assert sorted({row["length"] for row in run.rows()}) == lengths
    assert run.status().resolved["kernel"] in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING], caplog.text


def test_a_model_whose_position_embeddings_were_dropped_is_evaluated_beyond_their_number(
    small_run: SmallRun,
) -> None:
    run = small_run("encoding=drope", "encoding@encoding.inner=learned", "tokens=3840")
    assert job([str(run.path)]) == FINISHED, run.status().error
    assert max(row["length"] for row in run.rows()) == 96
