"""The processes of one run, each with a device of its own: what they settle together.

Alone, a process settles with itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from posenc.config.errors import PosencError
from posenc.runs.environment import local_rank, rank, world_size

T = TypeVar("T")
N = TypeVar("N", np.float64, np.int64)
BACKEND = "cpu:gloo,cuda:nccl"


class ProcessGroupLost(PosencError):
    """A process of the group has ended, so that nothing can be settled any more."""


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Inside, this process is one of its group, as torchrun's environment says, on its device."""
    if world_size() == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(local_rank())
    dist.init_process_group(BACKEND if device.type == "cuda" else "gloo")
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise ProcessGroupLost("another process of its group is gone") from error
        raise
    dist.destroy_process_group()  # not after an error: it would wait for those that are gone


def settled(decide: Callable[[], T]) -> T:
    """What process 0 decides, in every process."""
    if world_size() == 1:
        return decide()
    told: list[Any] = [decide() if rank() == 0 else None]
    dist.broadcast_object_list(told)
    return told[0]


def summed(values: NDArray[N]) -> NDArray[N]:
    """The sums of all processes' values."""
    if world_size() == 1:
        return values
    total = torch.from_numpy(values.copy())
    dist.all_reduce(total)
    return total.numpy()


def any_of(flag: bool) -> bool:
    """Whether the flag is set in any process."""
    return bool(summed(np.array([flag], dtype=np.int64))[0])


def shares(parts: Iterator[T]) -> Iterator[list[T]]:
    """Parts of some work, dealt out: rounds with one for each process, the last may be short."""
    while round_ := list(islice(parts, world_size())):
        yield round_
