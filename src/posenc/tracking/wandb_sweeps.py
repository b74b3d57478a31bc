"""Turns an experiment's jobs into W&B grid sweeps, in which each trial runs one job."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

SWEEP_METRIC = {"name": "extrapolation_ratio", "goal": "minimize"}
Job = Mapping[str, Any]
"""Override key -> value."""


def sweep_definitions(
    jobs: Sequence[Job], arguments: Sequence[str], name: str, destination: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return W&B sweep configurations whose trials run each job exactly once.

    `arguments` are added to every trial's command; `destination` has the project and, optionally,
    the entity.
    """
    grids = split_into_grids(jobs)
    return [
        {
            "name": name if len(grids) == 1 else f"{name} {i} of {len(grids)}",
            **destination,
            "program": "posenc",
            "command": ["${program}", "train", *arguments, "grids=null", "${args_no_hyphens}"],
            "method": "grid",
            "metric": SWEEP_METRIC,
            "parameters": {key: {"values": values} for key, values in grid.items()},
        }
        for i, grid in enumerate(grids, 1)
    ]


def split_into_grids(jobs: Sequence[Job]) -> list[dict[str, list[Any]]]:
    """Return grids `{key: values}` whose products together contain each job exactly once."""
    by_keys: dict[tuple[str, ...], list[Job]] = defaultdict(list)
    for job in jobs:
        by_keys[tuple(job)].append(job)
    return [grid for group in by_keys.values() for grid in _split_jobs(group)]


def _split_jobs(jobs: list[Job]) -> list[dict[str, list[Any]]]:
    """Return one grid for a full product; otherwise split by the first key with several values."""
    grid = {key: _distinct(job[key] for job in jobs) for key in jobs[0]}
    if prod(map(len, grid.values())) == len(jobs):
        return [grid]
    key = next(key for key, values in grid.items() if len(values) > 1)
    parts = ([job for job in jobs if job[key] == value] for value in grid[key])
    return [part_grid for part in parts for part_grid in _split_jobs(part)]


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())
