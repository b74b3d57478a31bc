"""The device and the data types that a configuration selects, and torch's numerical settings."""

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.runs.environment import PRECISION_VARIABLES, changed_environment

LIGHTNING_PRECISION = {"float32": "32-true", "bf16": "bf16-mixed"}
"""`precision` -> the name of that precision in Lightning."""


def select_device(config: DictConfig) -> torch.device:
    """Return the GPU if `trainer.accelerator` allows it and one is available, else the CPU."""
    gpu = config.trainer.accelerator != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu")


def processor_name(device: torch.device) -> str:
    """Return the model name of a GPU or CPU, or the CPU architecture if that is unknown."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def attention_dtype(precision: str) -> torch.dtype:
    """Return the data type of queries, keys and values."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return an autocast context, in bfloat16 for `bf16` and disabled for `float32`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def deterministic_numerics() -> Iterator[None]:
    """Apply the torch settings with which posenc trains and evaluates.

    These are its defaults for the dtype, the device and the precision of float32 matrix products,
    which a user's process or environment may have changed. This thread and those that it starts
    also flush subnormal numbers to zero: Intel CPUs are many times slower with them, and attention
    weights of distant keys with ALiBi are often subnormal.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    restore_precision, flushes_denormals = _precision_restorer(), _flushes_denormals()
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(True)
    try:
        with changed_environment({}, removed=PRECISION_VARIABLES):
            yield
    finally:
        torch.set_default_dtype(dtype)
        if device.type != "cpu":
            torch.set_default_device(device)
        restore_precision()
        torch.set_flush_denormal(flushes_denormals)


def _precision_restorer() -> Callable[[], None]:
    """Return a function that restores the current precision of float32 matrix products."""
    try:
        return partial(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    except RuntimeError:  # it was set for a single backend
        backends = (torch.backends.mkldnn.matmul, torch.backends.cuda.matmul)  # type: ignore
        precisions = [backend.fp32_precision for backend in backends]

    def restore() -> None:
        for backend, precision in zip(backends, precisions, strict=True):
            backend.fp32_precision = precision

    return restore


def _flushes_denormals() -> bool:
    subnormal = torch.tensor(2.0**-127, dtype=torch.float32, device="cpu")
    return (subnormal * 1.0).item() == 0


def check_accelerator(config: DictConfig) -> None:
    """Raise ConfigError if the configuration requires a GPU and none is available."""
    if config.trainer.accelerator == "gpu" and not torch.cuda.device_count():
        raise ConfigError(
            "trainer=gpu needs a CUDA GPU, but none was found; use trainer=cpu or trainer=auto"
        )
