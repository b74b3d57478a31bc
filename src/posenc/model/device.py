"""The device that a configuration selects, and how CPUs treat subnormal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from omegaconf import DictConfig

from posenc.config.errors import ConfigError


def select_device(config: DictConfig) -> torch.device:
    """Return the GPU if `trainer.accelerator` allows it and one is available, else the CPU."""
    gpu = config.trainer.accelerator != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu")


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Within this context, this thread and those that it starts round subnormal numbers to zero.

    Intel CPUs are many times slower with them, and attention weights of distant keys with ALiBi are
    often subnormal.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def check_accelerator(config: DictConfig) -> None:
    """Raise ConfigError if the configuration requires a GPU and none is available."""
    if config.trainer.accelerator == "gpu" and not torch.cuda.device_count():
        raise ConfigError(
            "trainer=gpu needs a CUDA GPU, but none was found; use trainer=cpu or trainer=auto"
        )
