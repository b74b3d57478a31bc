"""Converts an experiment's jobs into W&B sweeps: grids that run each job once, or searches."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from posenc.config.search_space import Interval

SWEEP_METRIC = {"name": "validation/loss", "goal": "minimize"}
Job = Mapping[str, Any]
"""Override key -> value."""


def sweep_definitions(
    jobs: Sequence[Job], arguments: Sequence[str], name: str, destination: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return W&B sweep configurations whose trials run each job exactly once.

    `arguments` are added to every trial's command; `destination` has the project and, optionally,
    the entity.
    """
    parameters = [
        {key: {"values": values} for key, values in grid.items()} for grid in split_into_grids(jobs)
    ]
    return _definitions(parameters, arguments, name, {**destination, "method": "grid"})


def search_definitions(
    jobs: Sequence[Job],
    intervals: Sequence[Interval],
    arguments: Sequence[str],
    name: str,
    fields: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return, for each job, a W&B sweep that searches the intervals for the best values.

    `fields` has the method (bayes or random), the destination and, optionally, `early_terminate`.
    """
    searched = {interval.key: _distribution(interval) for interval in intervals}
    parameters = [{**{k: {"value": v} for k, v in job.items()}, **searched} for job in jobs]
    return _definitions(parameters, arguments, name, fields)


def _definitions(
    parameters: Sequence[Mapping[str, Any]],
    arguments: Sequence[str],
    name: str,
    fields: Mapping[str, Any],
) -> list[dict[str, Any]]:
    return [
        {
            "name": name if len(parameters) == 1 else f"{name} {i} of {len(parameters)}",
            **fields,
            "program": "posenc",
            "command": ["${program}", "train", *arguments, "grids=null", "${args_no_hyphens}"],
            "metric": SWEEP_METRIC,
            "parameters": sweep_parameters,
        }
        for i, sweep_parameters in enumerate(parameters, 1)
    ]


def _distribution(interval: Interval) -> dict[str, Any]:
    if interval.is_integer:
        kind = "q_log_uniform_values" if interval.log else "int_uniform"
    else:
        kind = "log_uniform_values" if interval.log else "uniform"
    return {"distribution": kind, "min": interval.low, "max": interval.high}


def split_into_grids(jobs: Sequence[Job]) -> list[dict[str, list[Any]]]:
    """Return grids `{key: values}` whose products together contain each job exactly once."""
    by_keys: dict[tuple[str, ...], list[Job]] = defaultdict(list)
    for job in jobs:
        by_keys[tuple(job)].append(job)
    return [grid for group in by_keys.values() for grid in _split_jobs(group)]


def _split_jobs(jobs: list[Job]) -> list[dict[str, list[Any]]]:
    """Return one grid if the jobs are a full product; else split by the first key that varies."""
    grid = {key: list({json.dumps(j[key]): j[key] for j in jobs}.values()) for key in jobs[0]}
    if prod(map(len, grid.values())) == len(jobs):
        return [grid]
    key = next(key for key, values in grid.items() if len(values) > 1)
    parts = ([job for job in jobs if job[key] == value] for value in grid[key])
    return [part_grid for part in parts for part_grid in _split_jobs(part)]
