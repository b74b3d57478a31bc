"""Shipped premises and claims are valid, and those of three experiments can hold and can fail.

tests/jobs/test_experiments.py checks that the claims of every experiment are about its own runs.
"""

from itertools import product
from math import log2, log10
from pathlib import Path
from typing import Any

import pytest
import yaml

from posenc.report.claim_parser import check_claims
from posenc.report.published_curves import parse_published

EXPERIMENTS = Path(__file__).parents[2] / "conf" / "experiment"
FILES = {file.stem: yaml.safe_load(file.read_text()) for file in EXPERIMENTS.glob("*.yaml")}
NAMES = ("quickstart", "alibi_extrapolation", "rope_base")
CLAIMS = [
    (name, key, i)
    for name, key in product(NAMES, ("premises", "claims"))
    for i in range(len(FILES[name].get(key) or []))
]
BASES = {"rope": 10000, "nope": None, "alibi": None, "sinusoidal": None, "t5": None}
"""Encodings of all three experiments -> RoPE base."""
EXTRA_TOKENS = (50, 500, 1000, 3000, 7000, 15000)  # evaluation length minus training length
NGRAM_LOSSES = {3: 3.2, 5: 3.1}  # by order
MIRROR_LOSS = 3.0  # mirrored losses are reflected about this one


def loss_of(encoding: str, base: int | None, train_length: int, length: int) -> float:
    """Return a loss in nats per token; these losses satisfy the shipped premises and claims."""
    doublings, near = log2(length / train_length), length <= train_length + 200
    if encoding == "alibi":
        trained = {64: 3.05, 512: 3.0, 1024: 2.965}[train_length]
        return trained - 0.03 * doublings
    if encoding == "t5":
        return 2.99 - 0.01 * min(1, doublings) + 0.2 * max(0, doublings - 1)
    if encoding == "rope" and base is not None:
        rise = 0.2 if base == 100 else 0.5 - 0.05 * log10(base)
        rise = 0 if near and train_length > 200 else rise * doublings
        return 3.02 + 0.001 * log10(base / 10000) + rise
    if encoding == "sinusoidal":
        return 3.0 if 0 < length - train_length <= 50 else 3.02 + 0.9 * doublings
    return 3.05 + 0.3 * doublings


def fake_runs(tools: Any, name: str, mirrored: bool) -> list[Any]:
    """Return an experiment's runs with three seeds; `mirrored` reverses the order of the losses."""

    def reflect(loss: float) -> float:
        return MIRROR_LOSS - 40 * (loss - MIRROR_LOSS) if mirrored else loss

    bases = (100, 1000, 100000, 500000, 5000000) if name == "rope_base" else ()
    encodings = [*BASES.items(), *(("rope", base) for base in bases)]
    train_lengths = (64,) if name == "quickstart" else (512, 1024)
    runs = []
    for (encoding, base), train_length, seed in product(encodings, train_lengths, (1, 2, 3)):
        run = tools.fake(encoding, train_length, seed, encoding={"spectrum": {"base": base}})
        multiples = {n * train_length for n in (1, 2, 4, 8, 16)}
        for length in sorted(multiples | {train_length + extra for extra in EXTRA_TOKENS}):
            loss = reflect(loss_of(encoding, base, train_length, length))
            run.add_row(length, loss + 0.1 * seed + 1e-6 * (seed * length % 11))
        for order, loss in NGRAM_LOSSES.items():
            run.add_ngram(order, reflect(loss) + 0.1 * seed)
        runs.append(run)
    return runs


@pytest.mark.parametrize(("name", "key", "i"), CLAIMS)
def test_a_shipped_claim_can_hold_and_can_fail(tools: Any, name: str, key: str, i: int) -> None:
    claim = yaml.safe_dump([FILES[name][key][i]])
    for mirrored, outcome in ((False, "holds"), (True, "fails")):
        outcomes = set(tools.outcomes(claim, fake_runs(tools, name, mirrored)).values())
        assert outcomes == {outcome}, FILES[name][key][i]["statement"]


@pytest.mark.parametrize("name", FILES)
def test_the_claims_of_every_experiment_are_valid(name: str) -> None:
    for key in ("premises", "claims"):
        check_claims(FILES[name].get(key), [], key)
    parse_published(FILES[name].get("published"))
