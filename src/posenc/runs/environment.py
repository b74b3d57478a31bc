"""Environment variables of the processes that posenc starts, and this process's peak memory."""

import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MALLOC_VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
}
"""Settings that make glibc keep freed memory for the next training step.

Returning it to the operating system took 12% of a step's time.
"""
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Keeps Python processes from importing modules from the current directory, even with -c and -m."""
KIB = 1024  # bytes; Linux calls it kB
PRECISION_VARIABLES = (
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Environment variables that lower the precision of float32 matrix products.

Libraries read them when they compute their first matrix product.
"""
SOURCE_VARIABLE = "POSENC_SOURCE"
"""The variable that holds the folder of the original package, in case a job imports a copy."""
LIGHTNING_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""The environment variables from which Lightning takes the rank when it is imported."""


def job_environment(threads: int, code: Path | None = None) -> dict[str, str]:
    """Return the environment of a job that uses `threads` threads and imports posenc from `code`.

    It extends this process's environment, except for the variables of torchrun and
    PRECISION_VARIABLES. No bytecode is written into `code`, whose files are compared with the
    installed package.
    """
    folders = [code, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    excluded = {*torchrun_variables(0, 1, 0), *PRECISION_VARIABLES}
    no_bytecode = {"PYTHONDONTWRITEBYTECODE": "1"} if code else {}
    return {
        **MALLOC_VARIABLES,
        **SAFE_PATH,
        **{name: value for name, value in os.environ.items() if name not in excluded},
        SOURCE_VARIABLE: str(source_folder()),
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in folders if folder),
        **thread_variables(threads),
        **no_bytecode,
    }


def torchrun_variables(rank: int, devices: int, port: int) -> dict[str, str]:
    """Return the variables that define a process's place in its group, as torchrun sets them."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


@contextmanager
def changed_environment(
    variables: Mapping[str, str], removed: Sequence[str] = ()
) -> Iterator[None]:
    """Set and remove environment variables; on exit, restore these and no others."""
    before = {name: os.environ.pop(name, None) for name in (*variables, *removed)}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def source_folder() -> Path:
    """Return the folder of the package; in a job that imports a copy, that of the original."""
    return Path(os.environ.get(SOURCE_VARIABLE) or Path(__file__).parents[1])


def thread_variables(threads: int) -> dict[str, str]:
    """Return the variables that set the number of threads of numerical libraries."""
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


_is_job = False


@contextmanager
def job_process() -> Iterator[None]:
    """Within this context, torchrun's variables define the process group that this process joins.

    Elsewhere they are ignored: a shell or notebook may have inherited them from another program,
    and a command that mistook itself for a rank would process only its part of the data.
    """
    global _is_job
    before, _is_job = _is_job, True
    try:
        yield
    finally:
        _is_job = before


def in_process_group() -> bool:
    """Return whether this process is a job that was started as a rank of a process group."""
    return _is_job and "RANK" in os.environ


def rank() -> int:
    """Return this process's rank in its group; only rank 0 writes to the run directory."""
    return _group_variable("RANK", 0)


def world_size() -> int:
    """Return the number of processes in the group, one per device."""
    return _group_variable("WORLD_SIZE", 1)


def local_rank() -> int:
    """Return this process's rank on its machine."""
    return _group_variable("LOCAL_RANK", 0)


def local_world_size() -> int:
    """Return the number of processes in the group that run on this machine."""
    return _group_variable("LOCAL_WORLD_SIZE", 1)


def _group_variable(name: str, default: int) -> int:
    return int(os.environ.get(name, default)) if in_process_group() else default


def reset_peak_memory() -> None:
    """Reset the peak of `peak_megabytes` to the memory in use now; on a CPU, this needs Linux."""
    if (cuda := _initialized_cuda()) is not None:
        cuda.reset_peak_memory_stats()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM


def peak_megabytes() -> float:
    """Return this process's peak memory in MB: GPU memory if it uses CUDA, else resident memory."""
    if (cuda := _initialized_cuda()) is not None:
        return cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status")
    if status.is_file():  # after a fork, getrusage would include the parent's peak
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * KIB / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak if sys.platform == "darwin" else peak * KIB) / 1e6


def _initialized_cuda() -> Any:
    """Return `torch.cuda` if this process uses it, without importing torch."""
    torch = sys.modules.get("torch")
    used = torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()
    return torch.cuda if torch is not None and used else None
