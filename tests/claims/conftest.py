"""Fabricated results: runs whose losses are a function of encoding, lengths and seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from posenc.claims.evidence import Evidence
from posenc.claims.judge import judge
from posenc.claims.parse import parse_claims
from posenc.claims.verdict import Verdict

DATA = "f00dfeed0123"


@dataclass
class Fake:
    """A run as claims see one."""

    name: str
    config: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)

    def read(self, length: int, loss: float, **changes: Any) -> "Fake":
        """With a row more."""
        row = {"data": DATA, "data_name": "stdlib", "split": "validation", "length": length}
        row |= {"protocol": "nonoverlapping", "stride": None, "swap": None, "count": 1000}
        self.rows.append(row | {"loss": loss, "tokens_hash": "a"} | changes)
        return self


def fake(name: str, train_length: int, seed: int, **config: Any) -> Fake:
    """A run of the encoding `name` without rows; `config` adds to or replaces its configuration."""
    plain = {
        "choices": {"encoding": name, "model": "tiny", "data": "python_stdlib"},
        "encoding": {},
        "train_length": train_length,
        "seed": seed,
        "evaluation": {"split": "validation"},
        "frozen": {"fingerprint": DATA},
    }
    return Fake(f"{name}-L{train_length}-s{seed}", plain | config)


def verdicts(
    claims: str, runs: Sequence[Fake], command: str = "posenc train experiment=e"
) -> list[Verdict]:
    """What comes of claims, given as YAML."""
    return judge(parse_claims(yaml.safe_load(claims)), Evidence(runs, command, "outputs/e"))


def outcomes(claims: str, runs: Sequence[Fake]) -> dict[int | None, str]:
    return {verdict.train_length: verdict.outcome for verdict in verdicts(claims, runs)}


@dataclass(frozen=True)
class Tools:
    fake: Callable[..., Fake] = fake
    verdicts: Callable[..., list[Verdict]] = verdicts
    outcomes: Callable[..., Mapping[int | None, str]] = outcomes


@pytest.fixture
def tools() -> Tools:
    """The functions above."""
    return Tools()
