"""The CPU cores, main memory and GPUs of this machine, detected without importing torch."""

import os
import shutil
import subprocess
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = CGROUP) -> int:
    """Return the number of CPU cores that this process's affinity and cgroup allow it to use."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, int(_cgroup_quota(cgroup) or count)))


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Return the usable memory in bytes: the machine's, or its cgroup's limit if that is lower."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [
        *_read_fields(cgroup / "memory.max"),
        *_read_fields(cgroup / "memory" / "memory.limit_in_bytes"),
    ]
    return min([physical, *(int(limit) for limit in limits if limit != "max")])


def gpus() -> list[str]:
    """Return the ids of the visible CUDA devices, as in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        ids = [name.strip() for name in visible.split(",")]
        return [name for name in ids if name and name != "-1"]
    if shutil.which("nvidia-smi") is None:
        return []
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return [str(index) for index in range(count)]


def gpu_groups(gpus: list[str], devices: int) -> list[str]:
    """Return a value of CUDA_VISIBLE_DEVICES for each full group of `devices` GPUs."""
    return [",".join(group) for group in zip(*[iter(gpus)] * devices, strict=False)]


def _cgroup_quota(cgroup: Path) -> float | None:
    """Return the cgroup's CPU quota in cores (v2, else v1), or None if it has no quota."""
    limit = _read_fields(cgroup / "cpu.max") or [
        *_read_fields(cgroup / "cpu" / "cpu.cfs_quota_us"),
        *_read_fields(cgroup / "cpu" / "cpu.cfs_period_us"),
    ]
    if len(limit) != 2 or limit[0] in ("max", "-1"):
        return None
    return int(limit[0]) / int(limit[1])


def _read_fields(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
