"""The command that measures what a claim is missing."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim import MIN_SEEDS, Value
from posenc.report.claim_selectors import Run


def train_more_seeds(command: str, seeds: Sequence[int]) -> str:
    """Return the sweep's command with the fewest seeds that allow an interval, `seeds` included."""
    kept = list(seeds)
    new = (seed for seed in range(1, MIN_SEEDS + len(kept) + 1) if seed not in kept)
    while len(kept) < MIN_SEEDS:
        kept.append(next(new))
    return _train(command, {"seed": _join(sorted(kept))})


def train_missing_runs(command: str, value: Value, train_length: int, seeds: Sequence[int]) -> str:
    """Return the sweep's command for the runs of a value."""
    return _train(
        command, {**value.selector, "train_length": train_length, "seed": _join(sorted(seeds))}
    )


def evaluate_missing_rows(folder: str, run: Run, value: Value, length: int | None) -> str:
    """Return the command that evaluates one run in `folder` for a value."""
    protocol, swap = value.row_keys["protocol"], value.row_keys["swap"]
    settings = {
        "run": f"{folder}/{run.name}",
        "evaluation.protocols": f"[{protocol}]",
        "evaluation.lengths": length and f"[{length}]",
        f"evaluation.{PROTOCOLS[protocol].parameter}": value.row_keys.get("stride"),
        "evaluation.split": value.row_keys.get("split"),
        "evaluation.swaps": swap and f"['{swap}']",
    }
    overrides = [f"{key}={setting}" for key, setting in settings.items() if setting is not None]
    return shlex.join(["posenc", "evaluate", *overrides])


def _train(command: str, overrides: Mapping[str, Any]) -> str:
    """Return a command with some of its overrides replaced or added."""
    words = shlex.split(command) or ["posenc", "train"]
    kept = [word for word in words if word.partition("=")[0] not in overrides]
    return shlex.join([*kept, *(f"{key}={value}" for key, value in overrides.items())])


def _join(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))
