"""Collectives for the processes of one run (one per device); no-ops for a single process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from posenc.config.errors import PosencError
from posenc.runs.environment import in_process_group, local_rank, rank, world_size

T = TypeVar("T")
N = TypeVar("N", np.float64, np.int64)
BACKEND = "cpu:gloo,cuda:nccl"


class ProcessGroupLostError(PosencError):
    """Another process in the group has ended, so collectives can no longer complete."""


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the process group that torchrun's environment variables define; leave it at the end.

    Raises ProcessGroupLostError if another process in the group exits early.
    """
    if not in_process_group():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(local_rank())
    dist.init_process_group(BACKEND if device.type == "cuda" else "gloo")
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise ProcessGroupLostError("another process in its group has ended") from error
        raise
    dist.destroy_process_group()  # not after an error: it would wait for the processes that ended


def broadcast_from_rank0(compute: Callable[[], T]) -> T:
    """Call `compute` on rank 0 and return its result on every rank."""
    if world_size() == 1:
        return compute()
    objects: list[Any] = [compute() if rank() == 0 else None]
    dist.broadcast_object_list(objects)
    return objects[0]


def all_reduce_sum(values: NDArray[N]) -> NDArray[N]:
    """Return the elementwise sum of `values` over all processes."""
    if world_size() == 1:
        return values
    total = torch.from_numpy(values.copy())
    dist.all_reduce(total)
    return total.numpy()
