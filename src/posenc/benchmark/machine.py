"""What a measurement was made on and with: the part of a result that another machine changes."""

import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

from posenc import __version__


def machine(device: torch.device, threads: int) -> dict[str, Any]:
    """The device's name, threads, versions and the date."""
    return {
        "device": device_name(device),
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "posenc": __version__,
        "date": date.today().isoformat(),
    }


def device_name(device: torch.device) -> str:
    """As its maker calls it, where that can be found out."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
