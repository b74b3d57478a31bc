"""Fixtures of the benchmark tests: very small variants, and result rows with fixed timings."""

from collections.abc import Callable
from typing import Any

import pytest

from posenc.benchmark.bench_results import result_rows
from posenc.benchmark.variants import Variant, build_variants
from posenc.cli.arguments import parse
from posenc.cli.bench import compose_jobs

SMALL = [
    "model.width=32",
    "model.layers=2",
    "model.heads=4",
    "model.feed_forward=64",
    "vocab_size=50",
    "batch_tokens=64",
    "trainer=cpu",
    "threads=1",
]
MACHINE = {"device": "a CPU", "threads": 1, "torch": "2.13.0", "date": "2026-01-02"}


@pytest.fixture(scope="session")
def variants() -> Callable[..., list[Variant]]:
    """Builds the variants of a command line, on a very small model."""

    def make(*overrides: str) -> list[Variant]:
        return build_variants(compose_jobs(parse("bench", [*SMALL, *overrides])))

    return make


@pytest.fixture(scope="session")
def rows(variants: Callable[..., list[Variant]]) -> list[dict[str, Any]]:
    """Rows of two encodings at two lengths, in three rounds with fixed timings."""
    pair = variants("encoding=nope,alibi", "train_length=16,32", "passes=[step]")
    rounds = [
        {"seconds": [1.0, 2.0, 5.0, 10.0], "matmuls": {"float32": 0.5}},
        {"seconds": [4.0, 6.0, 5.0, 10.0], "matmuls": {"float32": 2.0}},
        {"seconds": [2.0, 5.0, 5.0, 10.0], "matmuls": {"float32": 1.0}},
    ]
    return result_rows(pair, rounds, [10.0, 12.0, 20.0, 30.0], MACHINE)
