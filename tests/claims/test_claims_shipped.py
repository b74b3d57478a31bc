"""Shipped claims, on a world in which all hold and on one turned upside down.

Whether the claims of every experiment are about its own runs is in tests/sweep/test_experiments.py.
"""

from itertools import product
from math import log2, log10
from pathlib import Path
from typing import Any

import pytest
import yaml

from posenc.claims.parse import check_claims
from posenc.claims.published import parse_published

EXPERIMENTS = Path(__file__).parents[2] / "conf" / "experiment"
FILES = {file.stem: yaml.safe_load(file.read_text()) for file in EXPERIMENTS.glob("*.yaml")}
WORLDS = ("quickstart", "alibi_extrapolation", "rope_base")
CLAIMS = [(name, i) for name in WORLDS for i in range(len(FILES[name]["claims"]))]
SHARED = {"rope": 10000, "nope": None, "alibi": None, "sinusoidal": None, "t5": None}
PIVOT = 3.0


def loss_of(encoding: str, base: int | None, train_length: int, length: int) -> float:
    """What the hypotheses of the shipped experiments say, in nats per token."""
    doublings, near = log2(length / train_length), length <= train_length + 200
    if encoding == "alibi":
        return 3.0 + (0.05 if train_length < 128 else 0) - 0.03 * doublings
    if encoding == "t5":
        return 2.99
    if encoding == "rope" and base is not None:
        rise = 0 if near and train_length > 200 else (0.5 - 0.05 * log10(base)) * doublings
        return 3.02 + 0.001 * log10(base / 10000) + rise
    if encoding == "sinusoidal":
        return 3.0 if 0 < length - train_length <= 50 else 3.02 + 0.9 * doublings
    return 3.05 + 0.3 * doublings


def world(tools: Any, name: str, upside_down: bool) -> list[Any]:
    """Three seeds of what an experiment trains."""
    bases = (100, 1000, 100000, 500000, 5000000) if name == "rope_base" else ()
    kinds = [*SHARED.items(), *(("rope", base) for base in bases)]
    lengths = (64,) if name == "quickstart" else (512, 1024)
    runs = []
    for (encoding, base), train_length, seed in product(kinds, lengths, (1, 2, 3)):
        run = tools.fake(encoding, train_length, seed, encoding={"spectrum": {"base": base}})
        longer = {n * train_length for n in (1, 2, 4, 8, 16)}
        for length in sorted(longer | {train_length + extra for extra in (50, 200, 15000)}):
            loss = loss_of(encoding, base, train_length, length)
            loss = PIVOT - 40 * (loss - PIVOT) if upside_down else loss
            run.read(length, loss + 0.1 * seed + 1e-6 * (seed * length % 11))
        runs.append(run)
    return runs


@pytest.mark.parametrize(("name", "i"), CLAIMS)
def test_a_shipped_claim_can_hold_and_can_fail(tools: Any, name: str, i: int) -> None:
    claim = yaml.safe_dump([FILES[name]["claims"][i]])
    for upside_down, outcome in ((False, "holds"), (True, "fails")):
        found = set(tools.outcomes(claim, world(tools, name, upside_down)).values())
        assert found == {outcome}, FILES[name]["claims"][i]["says"]


@pytest.mark.parametrize("name", FILES)
def test_the_claims_of_an_experiment_name_what_there_is(name: str) -> None:
    check_claims(FILES[name].get("claims"), [])
    parse_published(FILES[name].get("published"))
