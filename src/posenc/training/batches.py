"""The training batches in their order, from any step on."""

from collections.abc import Iterator

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from posenc.config.settings import Steps
from posenc.data.dataset import IGNORED, Batches

Batch = tuple[Tensor, Tensor, float]
"""Inputs and targets, int64 [n, T] each, and the targets that a micro-batch scores on average."""


class MicroBatches(IterableDataset):
    """The micro-batches of the optimizer steps from `first` on, in order."""

    def __init__(self, batches: Batches, steps: Steps, first: int) -> None:
        self.batches, self.steps, self.first = batches, steps, first

    def __iter__(self) -> Iterator[Batch]:
        for step in range(self.first, self.steps.total):
            inputs, targets = self.batches.batch(step, self.steps.sequences)
            # The mean of a step is over all of its targets, however it is cut.
            scored = int((targets != IGNORED).sum()) / self.steps.accumulate
            size = self.steps.micro_sequences
            for micro in zip(inputs.split(size), targets.split(size), strict=True):
                yield (*micro, scored)


def loader(batches: Batches, steps: Steps, first: int) -> DataLoader:
    """A loader of the micro-batches of the optimizer steps from `first` on."""
    return DataLoader(MicroBatches(batches, steps, first), batch_size=None)
