"""Environment variables of the processes that posenc starts, and this process's peak memory."""

import os
import resource
import sys
from pathlib import Path

MALLOC_VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
}
"""glibc keeps the memory that a step frees for the next one; returning it cost 12% of a step."""
GROUP_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""torchrun's environment variables of a process group."""


def job_environment(threads: int, code: Path | None = None) -> dict[str, str]:
    """Return the environment of a job: this one's, with `threads` and `code` to import from.

    Variables of a process group that this process belongs to are left out.
    """
    folders = [code, os.getcwd(), os.environ.get("PYTHONPATH")]
    return {
        **MALLOC_VARIABLES,
        **{name: value for name, value in os.environ.items() if name not in GROUP_VARIABLES},
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in folders if folder),
        **thread_variables(threads),
    }


def thread_variables(threads: int) -> dict[str, str]:
    """Return the variables by which numerical libraries choose their number of threads."""
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def in_process_group() -> bool:
    """Whether this process was started as a rank of a process group."""
    return "RANK" in os.environ


def rank() -> int:
    """Return this process's rank; only rank 0 writes to the run directory."""
    return int(os.environ.get("RANK", 0))


def world_size() -> int:
    """Return the number of processes in the group, one per device."""
    return int(os.environ.get("WORLD_SIZE", 1))


def local_rank() -> int:
    """Return this process's rank on its machine."""
    return int(os.environ.get("LOCAL_RANK", 0))


def local_world_size() -> int:
    """Return the number of processes of the group on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def peak_megabytes() -> float:
    """Return the peak resident memory of this process in MB, or of its tensors on a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status")
    if status.is_file():  # after a fork, getrusage would count the parent's peak
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3
