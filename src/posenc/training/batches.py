"""The training batches in their order, from any step on."""

from collections.abc import Iterator
from itertools import islice

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from posenc.config.settings import Steps
from posenc.data.dataset import IGNORED, Batches

Batch = tuple[Tensor, Tensor, float]
"""Inputs and targets, int64 [n, T] each, and the targets that a micro-batch scores on average."""


class MicroBatches(IterableDataset):
    """The micro-batches of the optimizer steps from `first` on, in order.

    They are dealt out to the devices one by one; these are those of device `rank`.
    """

    def __init__(self, batches: Batches, steps: Steps, first: int, rank: int) -> None:
        self.batches, self.steps, self.first, self.rank = batches, steps, first, rank

    def __iter__(self) -> Iterator[Batch]:
        for step in range(self.first, self.steps.total):
            inputs, targets = self.batches.batch(step, self.steps.sequences)
            # The mean of a step is over all of its targets, however it is cut.
            parts = self.steps.accumulate * self.steps.devices
            scored = int((targets != IGNORED).sum()) / parts
            size = self.steps.micro_sequences
            micros = zip(inputs.split(size), targets.split(size), strict=True)
            for micro in islice(micros, self.rank, None, self.steps.devices):
                yield (*micro, scored)


def loader(batches: Batches, steps: Steps, first: int, rank: int = 0) -> DataLoader:
    """A loader of device `rank`'s micro-batches of the optimizer steps from `first` on."""
    return DataLoader(MicroBatches(batches, steps, first, rank), batch_size=None)
