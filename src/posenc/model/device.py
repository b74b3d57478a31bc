"""The device that a configuration asks for."""

import torch
from omegaconf import DictConfig

from posenc.config.errors import ConfigError


def device_of(config: DictConfig) -> torch.device:
    """The GPU where `trainer.accelerator` allows it and one is there, else the CPU."""
    gpu = config.trainer.accelerator != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu")


def check_accelerator(config: DictConfig) -> None:
    """ConfigError for a GPU that is asked for and not there."""
    if config.trainer.accelerator == "gpu" and not torch.cuda.device_count():
        raise ConfigError("trainer=gpu, but no CUDA GPU is there; give trainer=cpu or trainer=auto")
