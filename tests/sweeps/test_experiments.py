"""Every experiment in every size: its jobs are valid, and its claims are about them."""

from functools import cache
from math import log
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from posenc.config.compose import compose
from posenc.config.grids import expand_config
from posenc.evaluation.requests import requested_rows
from posenc.jobs.job_config import compose_job
from posenc.jobs.validate import validate
from posenc.report.claim_parser import parse_claims
from posenc.report.experiment import Experiment, Run
from posenc.report.judge import judge
from posenc.runs.status import Status

pytestmark = pytest.mark.slow  # a hundred configurations are composed

CONF = Path(__file__).parents[2] / "conf" / "experiment"
FILES: dict[str, Any] = {f.stem: yaml.safe_load(f.read_text()) for f in CONF.glob("*.yaml")}
NAMES = sorted({*FILES} - {"alibi_cost"})  # which `posenc bench` measures
SIZES = [(name, size) for name in NAMES for size in FILES[name].get("sizes") or [None]]


def planned_run(config: Any, place: int, seed: int) -> Run:
    """A job as if it had run: rows with losses by its place and length."""
    plain: Any = OmegaConf.to_container(config)
    return Run(
        name=f"{config.choices.encoding}-{place}-s{seed}",
        label=config.choices.encoding,
        config={**plain, "seed": seed, "frozen": {"fingerprint": "f"}},
        status=Status(),
        rows=[
            row | {"count": 9, "full_count": 9, "tokens_hash": "a", "loss": loss, "accuracy": 0.5}
            for row in requested_rows(config, "f")
            if (loss := 3 + place + 0.1 * log(row["length"]) + 0.01 * len(str(row)) + 0.001 * seed)
        ],
        timing=[{"tokens_per_second": 100.0 + place + seed, "memory_mb": 90.0 + place}],
    )


@cache
def jobs(name: str, size: str | None) -> list[Any]:
    requested = [f"experiment={name}", *([f"size={size}"] if size else [])]
    overrides = expand_config(compose("train", requested), [])
    return [compose_job([*requested, *job], []) for job in overrides]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_its_jobs_are_valid(name: str, size: str | None) -> None:
    for config in jobs(name, size):
        validate(config)


@pytest.mark.parametrize("name", NAMES)
def test_its_claims_are_about_its_runs(name: str) -> None:
    sizes = [size for of, size in SIZES if of == name]
    configs = jobs(name, sizes[0])
    runs = [planned_run(config, i, seed) for i, config in enumerate(configs) for seed in (1, 2, 3)]
    composed = OmegaConf.to_container(compose("train", [f"experiment={name}"]), resolve=True)
    assert isinstance(composed, dict)
    for verdict in judge(parse_claims(composed["claims"]), Experiment(name, "", "", runs)):
        assert verdict.outcome != "undecided", (
            verdict.claim.statement,
            [c.reason for c in verdict.clauses],
        )
