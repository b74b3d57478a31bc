"""The command that makes what a claim lacks."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from posenc.claims.evidence import Evidence, Run
from posenc.claims.grammar import Value
from posenc.claims.intervals import FEWEST_SEEDS
from posenc.evaluation.protocols import PROTOCOLS


def more_seeds(evidence: Evidence, seeds: Sequence[int]) -> str:
    """The plan's command with the fewest seeds that allow an interval, those there among them."""
    kept = list(seeds)
    new = (seed for seed in range(1, FEWEST_SEEDS + len(kept) + 1) if seed not in kept)
    while len(kept) < FEWEST_SEEDS:
        kept.append(next(new))
    return _train(evidence.command, {"seed": _listed(sorted(kept))})


def such_runs(evidence: Evidence, value: Value, train_length: int) -> str:
    """The plan's command for the runs of a value, with the seeds that the experiment has."""
    seeds = {run.config["seed"] for run in evidence.runs}
    wanted = {**value.of, "train_length": train_length, "seed": _listed(sorted(seeds))}
    return _train(evidence.command, wanted)


def such_rows(evidence: Evidence, run: Run, value: Value, length: int | None) -> str:
    """The command that evaluates one run as a value asks for."""
    protocol = value.rows["protocol"]
    wanted = {
        "run": f"{evidence.folder}/{run.name}",
        "evaluation.protocols": f"[{protocol}]",
        "evaluation.lengths": length and f"[{length}]",
        f"evaluation.{PROTOCOLS[protocol].parameter}": value.rows.get("stride"),
        "evaluation.split": value.rows.get("split"),
        "evaluation.swaps": value.rows["swap"] and f"['{value.rows['swap']}']",
    }
    words = [f"{key}={given}" for key, given in wanted.items() if given is not None]
    return shlex.join(["posenc", "evaluate", *words])


def _train(command: str, wanted: Mapping[str, Any]) -> str:
    words = shlex.split(command) or ["posenc", "train"]
    kept = [word for word in words if word.partition("=")[0] not in wanted]
    return shlex.join([*kept, *(f"{key}={value}" for key, value in wanted.items())])


def _listed(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))
