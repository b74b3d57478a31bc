"""The memory of a training process, excluding the model.

`python -m posenc.benchmark.process_memory <<< '{}'` trains a tiny model and prints the peak memory
of the process in MB.
"""

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from posenc.benchmark.subprocess_calls import call_module, handle_request

TINY_RUN_OVERRIDES = [
    "model=tiny",
    "model.width=16",
    "model.feed_forward=16",
    "train_length=16",
    "tokens=32",
    "batch_tokens=16",
    "trainer=cpu",
    "modules=[]",
]
VOCAB_SIZE = 16


@cache
def process_bytes() -> int:
    """Return the memory in bytes that Python, torch and Lightning use in a training process."""
    (megabytes,) = call_module("posenc.benchmark.process_memory", {}, threads=1)
    return round(megabytes * 1e6)


def _train(request: dict[str, Any]) -> Iterator[float]:
    import torch
    from torch.utils.data import DataLoader

    import posenc.jobs.run_job  # noqa: F401  imports all modules that a run uses
    from posenc.config.compose import compose
    from posenc.config.steps import training_steps
    from posenc.runs.environment import peak_megabytes
    from posenc.training.fit import build_module
    from posenc.training.trainer import build_trainer

    torch.set_num_threads(1)
    config = compose("train", TINY_RUN_OVERRIDES)
    steps = training_steps(config)
    tokens = torch.zeros(1, config.train_length, dtype=torch.long)
    batches: Any = [(tokens, tokens, tokens.numel())] * steps.total
    loader = DataLoader(batches, batch_size=None)
    build_trainer(config, "cpu", steps, []).fit(build_module(config, VOCAB_SIZE, steps), loader)
    yield peak_megabytes()


if __name__ == "__main__":
    sys.exit(handle_request(_train))
