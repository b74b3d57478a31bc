"""An experiment's jobs as sweeps that W&B's agents run, a job for each trial."""

import json
from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any

from posenc.sweeps.overrides import STEERING, command_axes

Job = dict[str, Any]
METRIC = {"name": "extrapolation_ratio", "goal": "minimize"}


def definitions(
    jobs: Sequence[Sequence[str]], steering: Sequence[str], name: str, target: dict[str, str]
) -> list[dict[str, Any]]:
    """A grid sweep for each product of the jobs; together they hold every job once.

    `steering` are the overrides that a trial's command has besides its own, `target` the project
    and maybe the entity.
    """
    own = [[_typed(o) for o in job if o.partition("=")[0] not in STEERING] for job in jobs]
    found = products([dict(job) for job in own])
    return [
        {
            "name": name if len(found) == 1 else f"{name} {i} of {len(found)}",
            **target,
            "program": "posenc",
            "command": ["${program}", "train", *steering, "grids=null", "${args_no_hyphens}"],
            "method": "grid",
            "metric": METRIC,
            "parameters": {key: {"values": values} for key, values in axes.items()},
        }
        for i, axes in enumerate(found, 1)
    ]


def products(jobs: Sequence[Job]) -> list[dict[str, list[Any]]]:
    """Axes `{key: values}` whose products are the jobs, none of them twice."""
    alike: dict[tuple[str, ...], list[Job]] = defaultdict(list)
    for job in jobs:
        alike[tuple(job)].append(job)
    return [axes for group in alike.values() for axes in _split(group)]


def _split(jobs: list[Job]) -> list[dict[str, list[Any]]]:
    """As one product, or else by the values of the first key that has several."""
    axes = {key: _distinct(job[key] for job in jobs) for key in jobs[0]}
    if prod(map(len, axes.values())) == len(jobs):
        return [axes]
    first = next(key for key, values in axes.items() if len(values) > 1)
    parts = ([job for job in jobs if job[first] == value] for value in axes[first])
    return [found for part in parts for found in _split(part)]


def _distinct(values: Any) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())


def _typed(override: str) -> tuple[str, Any]:
    """Key and value: a number as one, so that W&B compares it; the rest as it is typed."""
    key, _, text = override.partition("=")
    value = json.loads(command_axes([override])[0].settings[0].value or "null")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return key, value if number else text
