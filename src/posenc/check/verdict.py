"""What a property of an encoding comes to: it holds, it is a declared exception, or it fails."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

EXACT = 1e-12
"""How far apart in float64 what should be the same may lie."""


@dataclass(frozen=True)
class Verdict:
    """A verdict and what it rests on, in one line."""

    kind: Literal["holds", "exception", "fails"]
    evidence: str


def holds(evidence: str) -> Verdict:
    return Verdict("holds", evidence)


def fails(evidence: str) -> Verdict:
    return Verdict("fails", evidence)


def judged(found: bool, evidence: str, declared: str | None) -> Verdict:
    """Whether what was found is right, `declared` the reason of an exception or None."""
    if declared is None:
        return holds(evidence) if found else fails(evidence)
    if found:
        return fails(f"declared an exception ({declared}), yet it holds: {evidence}")
    return Verdict("exception", f"{declared}; {evidence}")


def deviation(a: Tensor, b: Tensor) -> float:
    """The largest difference between two tensors; infinite where either is no number."""
    return (a - b).abs().nan_to_num(nan=float("inf")).max().item()
