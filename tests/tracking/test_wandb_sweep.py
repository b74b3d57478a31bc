"""W&B sweeps: the commands that an agent builds from them are the experiment's jobs."""

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

from compositions import composer
from posenc.cli import main
from posenc.config.compose import compose
from posenc.config.grids import expand_config, sweep_overrides
from posenc.config.identity import identity
from posenc.jobs.job_config import compose_job
from posenc.tracking.wandb_sweeps import split_into_grids


def sweep_files(tmp_path: Path, *overrides: str) -> list[dict[str, Any]]:
    assert main(["wandb-sweep", *overrides, f"outputs_dir={tmp_path}"]) == 0
    return [yaml.safe_load(file.read_text()) for file in sorted(tmp_path.glob("*/wandb-sweep-*"))]


def trials(definition: dict[str, Any]) -> list[list[str]]:
    """The command lines of a grid, built by the functions of W&B's agent."""
    axes = [[(k, v) for v in axis["values"]] for k, axis in definition["parameters"].items()]
    commands = []
    for values in product(*axes):
        args = create_sweep_command_args({"args": {k: {"value": v} for k, v in values}})
        parts = create_sweep_command(definition["command"])
        macros = {**args, "program": [definition["program"]]}
        expanded = ([w] if not w.startswith("${") else macros[w[2:-1]] for w in map(str, parts))
        commands.append([argument for arguments in expanded for argument in arguments])
    return commands


def identities(jobs: list[list[str]]) -> Counter[str]:
    """The identity of each job's run, on the same data."""
    return Counter(
        json.dumps(identity(compose_job(job, composer()), "f00d"), sort_keys=True) for job in jobs
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ["encoding=rope", "encoding.spectrum.base=1e4,5e5", "tokens=5e6"],
        pytest.param(["experiment=rope_base"], marks=pytest.mark.slow),
    ],
)
def test_the_trials_are_the_experiments_jobs(tmp_path, overrides):
    definitions = sweep_files(tmp_path, *overrides)
    commands = [command for definition in definitions for command in trials(definition)]
    trial_jobs = []
    for program, command, *trial in commands:
        assert (program, command) == ("posenc", "train")
        config = compose("train", sweep_overrides(trial))
        (job,) = expand_config(config, trial)
        assert compose("train", job).logger.mode == "online"
        trial_jobs.append(job)
    jobs = expand_config(compose("train", sweep_overrides(overrides)), overrides)
    assert identities(trial_jobs) == identities(jobs)
    assert set(identities(jobs).values()) == {1}


def test_jobs_that_are_not_a_full_product_become_several_grids():
    jobs = [{"a": a, "b": b} for a, b in ((1, 1), (1, 2), (2, 1))]
    assert split_into_grids(jobs) == [{"a": [1], "b": [1, 2]}, {"a": [2], "b": [1]}]


def test_numbers_stay_numbers_and_other_values_are_text(tmp_path):
    (definition,) = sweep_files(
        tmp_path, "tokens=5e6", "gradient_clip=null", "evaluation.lengths=[64,128]"
    )
    values = {key: axis["values"] for key, axis in definition["parameters"].items()}
    assert values == {
        "tokens": [5000000],
        "gradient_clip": ["null"],
        "evaluation.lengths": ["[64,128]"],
    }


@pytest.mark.parametrize(
    "override",
    ["name=../../x", "foo=1", "+foo=1", "tokens=x", "seed=-1", "seed=1,-1", "encoding.foo=1"],
)
def test_an_invalid_job_is_an_error_and_nothing_is_written(tmp_path, capsys, override):
    outputs = tmp_path / "deep" / "outputs"
    assert main(["wandb-sweep", "encoding=alibi", f"outputs_dir={outputs}", override]) == 2
    assert override.removeprefix("+").partition("=")[0] in capsys.readouterr().err
    assert list(tmp_path.rglob("*.yaml")) == []


def test_a_sweep_without_wandb_is_an_error(tmp_path, capsys):
    assert main(["wandb-sweep", "logger=none", f"outputs_dir={tmp_path}"]) == 2
    assert "logger=wandb" in capsys.readouterr().err


LEARNING_RATE = "optimizer.learning_rate=tag(log,interval(1e-3,1e-1))"


def test_an_interval_becomes_one_search_per_job(tmp_path):
    overrides = ["encoding=alibi,rope", "method=random", "min_iter=3", LEARNING_RATE]
    definitions = sweep_files(tmp_path, *overrides)
    assert [d["parameters"]["encoding"] for d in definitions] == [
        {"value": "alibi"},
        {"value": "rope"},
    ]
    for definition in definitions:
        assert definition["parameters"]["optimizer.learning_rate"] == {
            "distribution": "log_uniform_values",
            "min": 0.001,
            "max": 0.1,
        }
        assert definition["method"] == "random"
        assert definition["early_terminate"] == {"type": "hyperband", "min_iter": 3}
        assert definition["metric"] == {"name": "validation/loss", "goal": "minimize"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["method=bayes"], "method"),
        (["method=grid", LEARNING_RATE], "method=grid"),
        (["min_iter=0", LEARNING_RATE], "min_iter=0"),
        ([f"min_iter={'9' * 5000}", LEARNING_RATE], "min_iter=999"),
        (["optimizer.learning_rate=interval(1,0.1)"], "optimizer.learning_rate"),
        (["optimizer.learning_rate=tag(log,interval(0,1))"], "log"),
        (["optimizer.learning_rate=interval(-1,1)"], "learning_rate=-1"),
        (["nonsense=interval(0,1)"], "nonsense"),
        (["seed=interval(1,9)"], "int(interval("),
        (["model.layers=interval(2,8)"], "model.layers"),
    ],
)
def test_an_invalid_search_is_an_error_and_nothing_is_written(tmp_path, capsys, overrides, message):
    assert (
        main(["wandb-sweep", "encoding=alibi", f"outputs_dir={tmp_path / 'out'}", *overrides]) == 2
    )
    assert message in capsys.readouterr().err
    assert list(tmp_path.rglob("*.yaml")) == []
