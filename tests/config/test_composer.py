"""Jobs composed from shared compositions equal those that Hydra composes one by one."""

import json
from typing import Any

import pytest
from omegaconf import OmegaConf

from posenc.config.compose import Composer, compose
from posenc.config.errors import ConfigError

JOBS = [
    ["encoding=rope", "encoding.spectrum.base=500000", "seed=3"],
    ["encoding=rope", "encoding/spectrum=p_rope", "encoding.spectrum.fraction=0.5", "seed=1"],
    ["encoding=rope", "encoding.spectrum.base=100", "tokens=3e5"],
    ["evaluation.lengths=[64,100]", "model=small", "model.width=96", "name='a b'"],
    ["evaluation.factors=[1,2]", "encoding=alibi", "encoding=t5"],
    ["experiment=alibi_extrapolation", "size=gpu_hour", "seed=2"],
    ["data=task_copy", "model.heads=2"],
    ["data=task_copy", "+about={title: x}", "~modules", "optimizer=adamw"],
    ["tokens=1e6", "tokens=2e6", "optimizer.learning_rate=3e-3", "outputs_dir=${name}/x"],
    ["evaluation/swap=yarn", "evaluation.swap.factor=4", "logger=none", "hydra/launcher=ray"],
]


def to_json(config: Any) -> str:
    values: Any = OmegaConf.to_container(config)
    values.pop("hydra", None)
    return json.dumps(values)


@pytest.mark.slow
def test_shared_compositions_equal_hydras_own() -> None:
    composer = Composer("train")
    for job in [*JOBS, *JOBS]:
        expected = compose("train", job, with_hydra=True)
        config, choices = composer.compose(job)
        assert to_json(config) == to_json(expected)
        assert choices == dict(expected.hydra.runtime.choices)
        config.name = "changed"  # must not change the next composition


@pytest.mark.parametrize(
    "job", [["seeed=1"], ["encoding=rope", "encoding.spectrum.bse=2"], ["model.width.x=1"]]
)
def test_an_invalid_job_has_the_error_of_a_single_composition(job: list[str]) -> None:
    with pytest.raises(ConfigError) as expected:
        compose("train", job, with_hydra=True)
    with pytest.raises(ConfigError) as error:
        Composer("train").compose(job)
    assert str(error.value) == str(expected.value)
