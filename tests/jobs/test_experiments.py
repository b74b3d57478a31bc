"""Every experiment in every size has valid jobs, and its claims refer to its runs."""

from functools import cache
from math import log
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from compositions import composer
from posenc.config.compose import compose
from posenc.config.grids import compose_sweep, expand_config
from posenc.config.paths import conf_dir, options
from posenc.config.steps import training_steps
from posenc.evaluation.requests import requested_row_keys
from posenc.jobs.job_config import compose_job, compose_sweep_jobs
from posenc.jobs.validate import validate
from posenc.report.claim_parser import parse_claims
from posenc.report.experiment import Experiment, Run
from posenc.report.judge import judge
from posenc.runs.status import Status

FILES: dict[str, Any] = {
    file.stem: yaml.safe_load(file.read_text())
    for file in sorted((conf_dir() / "experiment").glob("*.yaml"))
}
NAMES = sorted({*FILES} - {"alibi_cost", "kernel_choice"})  # without the benchmarks
SIZES = [(name, size) for name in NAMES for size in FILES[name].get("sizes") or [None]]

VERIFIED: set[str] = set()
"""The encodings that `validate` has verified, so that each is verified only once."""


def evaluated_run(config: Any, index: int, seed: int) -> Run:
    """Return a run with every requested row; losses depend on the index, the row and the seed."""
    plain: Any = OmegaConf.to_container(config)
    return Run(
        name=f"{config.choices.encoding}-{index}-s{seed}",
        label=config.choices.encoding,
        config={**plain, "seed": seed, "planned": {"fingerprint": "f"}},
        status=Status(),
        rows=[
            row | {"count": 9, "full_count": 9, "tokens_hash": "a", "loss": loss, "accuracy": 0.5}
            for row in requested_row_keys(config, "f")
            if (loss := 3 + index + 0.1 * log(row["length"]) + 0.01 * len(str(row)) + 0.001 * seed)
        ],
        timing=[{"tokens_per_second": 100.0 + index + seed, "memory_mb": 90.0 + index}],
        ngrams=[
            {"order": n, "data": "f", "split": config.evaluation.split, "count": 9, "loss": 9.0 - n}
            for n in (2, 3, 4, 5)
        ],
    )


@cache
def jobs(name: str, size: str | None) -> list[Any]:
    """Return all jobs of an experiment's first size, or the first and last job of another size."""
    words = [f"experiment={name}", *([f"size={size}"] if size else [])]
    overrides = expand_config(compose("train", words), [])
    if (name, size) != next(pair for pair in SIZES if pair[0] == name):
        overrides = [overrides[0], overrides[-1]]
    composed = compose_sweep_jobs([[*words, *job] for job in overrides], composer())
    return [OmegaConf.create(values) for values in composed]


@pytest.mark.parametrize("name", [name for name, size in SIZES if size == "laptop"])
def test_the_first_job_of_the_laptop_size_can_be_planned(name: str, tmp_path: Path) -> None:
    words = [f"experiment={name}", "size=laptop"]
    overrides = expand_config(compose("train", words), words)
    validate(compose_job([*overrides[0], f"outputs_dir={tmp_path}"], composer()))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), SIZES)
def test_the_first_and_the_last_job_of_every_size_can_be_debugged(
    name: str, size: str | None
) -> None:
    words = [f"experiment={name}", *([f"size={size}"] if size else []), "debug=fast"]
    overrides = expand_config(compose_sweep("train", words, []), words)
    for job in (overrides[0], overrides[-1]):
        validate(compose_job(job, composer()), VERIFIED)


@pytest.mark.slow  # a hundred configurations are composed
@pytest.mark.parametrize(("name", "size"), SIZES)
def test_jobs_of_every_size_are_valid(name: str, size: str | None) -> None:
    assert size is None or size in options("size")
    for config in jobs(name, size):
        validate(config, VERIFIED)
        assert size is None or training_steps(config).total > 100
        assert size is None or config.name == f"{name}-{size}"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_premise_and_claim_can_be_judged(name: str) -> None:
    sizes = [size for experiment, size in SIZES if experiment == name]
    configs = jobs(name, sizes[0])
    indexed = list(enumerate(configs))
    runs = [evaluated_run(config, i, seed) for i, config in indexed for seed in (1, 2, 3)]
    composed = OmegaConf.to_container(compose("train", [f"experiment={name}"]), resolve=True)
    assert isinstance(composed, dict)
    claims = [claim for key in ("premises", "claims") for claim in parse_claims(composed[key], key)]
    for verdict in judge(claims, Experiment(name, "", "", runs)):
        assert verdict.outcome in ("holds", "fails"), (
            verdict.claim.statement,
            [c.reason for c in verdict.clauses],
        )
