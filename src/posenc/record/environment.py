"""What a process that posenc starts finds around it."""

import os
from pathlib import Path

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**31 - 1), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""glibc keeps what a step frees for the next one: taking it from the kernel anew cost 12%."""


def environment(threads: int, code: Path | None = None) -> dict[str, str]:
    """This process's variables, so many threads, `code` and the current folder to import from."""
    folders = [code, os.getcwd(), os.environ.get("PYTHONPATH")]
    path = [str(folder) for folder in folders if folder]
    return {
        **KEEP_MEMORY,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
    }
