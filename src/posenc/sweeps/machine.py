"""What of this machine a sweep may use; answered without importing torch."""

import os
import shutil
import subprocess
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = CGROUP) -> int:
    """Processors that this process may use: its affinity, and a container's quota, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        there = len(os.sched_getaffinity(0))
    else:
        there = os.cpu_count() or 1
    return max(1, min(there, int(_quota(cgroup) or there)))


def gpus() -> list[str]:
    """The CUDA devices, as CUDA_VISIBLE_DEVICES names them: of that variable, or of nvidia-smi."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        return [name for name in names if name and name != "-1"]
    if shutil.which("nvidia-smi") is None:
        return []
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return [str(index) for index in range(count)]


def together(gpus: list[str], devices: int) -> list[str]:
    """As many at a time as a run has devices, in the words of CUDA_VISIBLE_DEVICES."""
    return [",".join(some) for some in zip(*[iter(gpus)] * devices, strict=False)]


def _quota(cgroup: Path) -> float | None:
    """Processors' worth of time that the control group grants (version 2, then 1)."""
    limit = _words(cgroup / "cpu.max") or [
        *_words(cgroup / "cpu" / "cpu.cfs_quota_us"),
        *_words(cgroup / "cpu" / "cpu.cfs_period_us"),
    ]
    if len(limit) != 2 or limit[0] in ("max", "-1"):
        return None
    return int(limit[0]) / int(limit[1])


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
