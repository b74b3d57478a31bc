"""How much memory this process has needed."""

import resource
import sys
from pathlib import Path


def peak_megabytes() -> float:
    """The largest resident size of this process so far, in MB; on a GPU, of its tensors there."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would start from the size of the process that started this one
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3
