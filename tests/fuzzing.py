"""Runs tests on examples that Hypothesis generates: a fixed number of them, or for a given time.

By default, a test runs on the same examples every time. With the environment variable
POSENC_FUZZ_SECONDS, all fuzz tests together run on new examples for that time. The error of a
failed test has a note with its seed; set POSENC_FUZZ_SEED to it to rerun the examples.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

NUM_TESTS = 2
"""The number of fuzz tests, each of which gets an equal part of POSENC_FUZZ_SECONDS."""
MAX_SECONDS = 120
"""A command that takes longer is considered to hang."""


def fuzz(test: Callable[..., None], max_examples: int, **strategies: SearchStrategy[Any]) -> None:
    """Run `test` on `max_examples` fixed examples, or on new ones until the time is used up."""
    options = settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # examples are small, and shrinking them takes minutes
    )
    seconds = os.environ.get("POSENC_FUZZ_SECONDS")
    if seconds is None:
        settings(options, derandomize=True)(given(**strategies)(test))()
        return
    next_seed = int(os.environ.get("POSENC_FUZZ_SEED") or random.SystemRandom().randrange(10**6))
    deadline = time.monotonic() + float(seconds) / NUM_TESTS
    while time.monotonic() < deadline:
        try:
            seed(next_seed)(settings(options, max_examples=20)(given(**strategies)(test)))()
        except BaseException as error:
            error.add_note(f"POSENC_FUZZ_SEED={next_seed}")
            raise
        next_seed += 1


@contextmanager
def time_limit(description: object) -> Iterator[None]:
    """Fail if the block takes longer than MAX_SECONDS."""

    def stop(*_: object) -> None:
        pytest.fail(f"{description} took more than {MAX_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
