"""Every size of every experiment composes into runs whose parts can be built."""

from pathlib import Path

import pytest
import yaml

from posenc.config.compose import compose
from posenc.config.paths import conf_dir, options
from posenc.config.settings import steps_of
from posenc.sweeps.facts import check_parts
from posenc.sweeps.grids import jobs_of
from posenc.sweeps.plan import resolved

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
    jobs = jobs_of(compose("train", words), words)
    for job in (jobs[0], jobs[-1]):
        config = resolved([*job, f"outputs_dir={tmp_path}"], [])
        check_parts(config)
        assert steps_of(config).total > 100
        assert config.name == f"{experiment}-{size}"
