"""Processors and GPUs of this machine, without importing torch."""

import os
import shutil
import subprocess
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = CGROUP) -> int:
    """Return the processors available to this process: its affinity, limited by its cgroup."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, int(_cgroup_quota(cgroup) or count)))


def gpus() -> list[str]:
    """Return the CUDA devices in the syntax of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        return [name for name in names if name and name != "-1"]
    if shutil.which("nvidia-smi") is None:
        return []
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return [str(index) for index in range(count)]


def gpu_groups(gpus: list[str], devices: int) -> list[str]:
    """Group GPUs by the number of devices of a run; each group is a CUDA_VISIBLE_DEVICES value."""
    return [",".join(group) for group in zip(*[iter(gpus)] * devices, strict=False)]


def _cgroup_quota(cgroup: Path) -> float | None:
    """Return the CPU quota of the control group in processors (version 2, then 1)."""
    limit = _words(cgroup / "cpu.max") or [
        *_words(cgroup / "cpu" / "cpu.cfs_quota_us"),
        *_words(cgroup / "cpu" / "cpu.cfs_period_us"),
    ]
    if len(limit) != 2 or limit[0] in ("max", "-1"):
        return None
    return int(limit[0]) / int(limit[1])


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
