"""What a process that posenc starts finds around it."""

import os
from pathlib import Path

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**31 - 1), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""glibc keeps what a step frees for the next one: taking it from the kernel anew cost 12%."""
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process of a group, in its own names."""


def environment(threads: int, code: Path | None = None) -> dict[str, str]:
    """This process's variables, so many threads, `code` and the current folder to import from.

    What they say of a process group that this process may be in is left out.
    """
    folders = [code, os.getcwd(), os.environ.get("PYTHONPATH")]
    path = [str(folder) for folder in folders if folder]
    return {
        **KEEP_MEMORY,
        **{name: value for name, value in os.environ.items() if name not in RANKS},
        "PYTHONPATH": os.pathsep.join(path),
        **threads_of(threads),
    }


def threads_of(threads: int) -> dict[str, str]:
    """What numerical libraries look at for their number of threads."""
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def grouped() -> bool:
    """Whether this process was started as one of a group."""
    return "RANK" in os.environ


def rank() -> int:
    """The number of this process in its group, from 0; 0 alone writes the run's record."""
    return int(os.environ.get("RANK", 0))


def world_size() -> int:
    """Processes of the group, each with a device: 1 outside of any."""
    return int(os.environ.get("WORLD_SIZE", 1))


def local_rank() -> int:
    """The number of this process among those of its group on its machine."""
    return int(os.environ.get("LOCAL_RANK", 0))


def local_world_size() -> int:
    """Processes of the group on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))
