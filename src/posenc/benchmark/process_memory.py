"""Memory of a training process itself: `python -m posenc.benchmark.process_memory` prints MB."""

import os
import subprocess
import sys
from functools import cache
from typing import Any

from posenc.runs.environment import MALLOC_VARIABLES

NOTHING = [
    "model=tiny",
    "model.width=16",
    "model.feed_forward=16",
    "train_length=16",
    "tokens=32",
    "batch_tokens=16",
    "trainer=cpu",
    "modules=[]",
]
VOCABULARY = 16


@cache
def process_bytes() -> int:
    """Bytes of Python, torch and Lightning at work, from a process with a run's environment."""
    done = subprocess.run(
        [sys.executable, "-m", "posenc.benchmark.process_memory"],
        env=os.environ | MALLOC_VARIABLES,
        capture_output=True,
        text=True,
        check=True,
    )
    return round(float(done.stdout.split()[-1]) * 1e6)


def _train_nothing() -> None:
    import torch
    from torch.utils.data import DataLoader

    import posenc.jobs.run_job  # noqa: F401  all that a run's process imports
    from posenc.config.compose import compose
    from posenc.config.steps import training_steps
    from posenc.runs.environment import peak_megabytes
    from posenc.training.fit import build_module
    from posenc.training.trainer import build_trainer

    torch.set_num_threads(1)
    config = compose("train", NOTHING)
    steps = training_steps(config)
    tokens = torch.zeros(1, config.train_length, dtype=torch.long)
    given: Any = [(tokens, tokens, tokens.numel())] * steps.total
    batches = DataLoader(given, batch_size=None)
    build_trainer(config, "cpu", steps, []).fit(build_module(config, VOCABULARY, steps), batches)
    print(peak_megabytes())


if __name__ == "__main__":
    _train_nothing()
