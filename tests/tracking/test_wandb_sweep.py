"""Sweeps for W&B's agents: the commands that these make of them are the experiment's jobs."""

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

from posenc.cli import main
from posenc.config.compose import compose
from posenc.config.identity import identity
from posenc.dashboard.sweeps import products
from posenc.sweeps.grids import jobs_of
from posenc.sweeps.overrides import steering
from posenc.sweeps.plan import resolved


def written(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["wandb-sweep", *words, f"outputs_dir={tmp_path}"]) == 0
    return [yaml.safe_load(file.read_text()) for file in sorted(tmp_path.glob("*/wandb-sweep-*"))]


def trials(definition: dict[str, Any]) -> list[list[str]]:
    """The command lines of a grid, put together by the agent's own functions."""
    axes = [[(k, v) for v in said["values"]] for k, said in definition["parameters"].items()]
    commands = []
    for values in product(*axes):
        args = create_sweep_command_args({"args": {k: {"value": v} for k, v in values}})
        parts = create_sweep_command(definition["command"])
        known = {**args, "program": [definition["program"]]}
        filled = ([w] if not w.startswith("${") else known[w[2:-1]] for w in map(str, parts))
        commands.append([word for words in filled for word in words])
    return commands


def identities(jobs: list[list[str]]) -> Counter[str]:
    """What each job's run would be, on the same data."""
    return Counter(json.dumps(identity(resolved(job, []), "f00d"), sort_keys=True) for job in jobs)


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=rope", "encoding.spectrum.base=1e4,5e5", "tokens=5e6"],
        pytest.param(["experiment=rope_base"], marks=pytest.mark.slow),
    ],
)
def test_the_trials_are_the_experiments_jobs(tmp_path, words):
    commands = [command for found in written(tmp_path, *words) for command in trials(found)]
    alone = []
    for program, command, *overrides in commands:
        assert (program, command) == ("posenc", "train")
        config = compose("train", steering(overrides))
        (job,) = jobs_of(config, overrides)
        assert compose("train", job).logger.mode == "online"
        alone.append(job)
    wanted = jobs_of(compose("train", steering(words)), words)
    assert identities(alone) == identities(wanted)
    assert set(identities(wanted).values()) == {1}


def test_what_is_no_product_becomes_several():
    jobs = [{"a": a, "b": b} for a, b in ((1, 1), (1, 2), (2, 1))]
    assert products(jobs) == [{"a": [1], "b": [1, 2]}, {"a": [2], "b": [1]}]


def test_numbers_stay_numbers_and_the_rest_is_as_typed(tmp_path):
    (found,) = written(tmp_path, "tokens=5e6", "gradient_clip=null", "evaluation.lengths=[64,128]")
    values = {key: said["values"] for key, said in found["parameters"].items()}
    assert values == {
        "tokens": [5000000],
        "gradient_clip": ["null"],
        "evaluation.lengths": ["[64,128]"],
    }


def test_without_wandb_there_is_no_sweep(tmp_path, capsys):
    assert main(["wandb-sweep", "logger=none", f"outputs_dir={tmp_path}"]) == 2
    assert "logger=none" in capsys.readouterr().err
