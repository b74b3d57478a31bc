"""Every size of every experiment composes into runs whose parts can be built."""

from pathlib import Path

import pytest
import yaml

from posenc.config.compose import compose
from posenc.config.grids import expand_config
from posenc.config.paths import conf_dir, options
from posenc.config.steps import training_steps
from posenc.jobs.job_config import compose_job
from posenc.jobs.validate import validate

SIZES = [
    (file.stem, size)
    for file in sorted((conf_dir() / "experiment").glob("*.yaml"))
    for size in yaml.safe_load(file.read_text()).get("sizes") or {}
    if file.stem != "alibi_cost"  # a benchmark
]


@pytest.mark.parametrize(("experiment", "size"), SIZES)
def test_a_size_can_be_planned(experiment: str, size: str, tmp_path: Path) -> None:
    assert size in options("size")
    words = [f"experiment={experiment}", f"size={size}"]
    jobs = expand_config(compose("train", words), words)
    for job in (jobs[0], jobs[-1]):
        config = compose_job([*job, f"outputs_dir={tmp_path}"], [])
        validate(config)
        assert training_steps(config).total > 100
        assert config.name == f"{experiment}-{size}"
