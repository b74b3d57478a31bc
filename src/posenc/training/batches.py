"""The micro-batches of a run in order, starting from any optimizer step."""

from collections.abc import Iterator
from itertools import islice

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from posenc.config.steps import TrainingSteps
from posenc.data.dataset import IGNORE_INDEX, Batches

MicroBatch = tuple[Tensor, Tensor, float]
"""Inputs and targets, int64 [n, T] each, and the mean number of scored targets per micro-batch."""


class RepeatedBatch:
    """Returns the first batch of `batches` in every step."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        return self.batches.batch(0, size)


class MicroBatches(IterableDataset):
    """The micro-batches of device `rank`, from optimizer step `first_step` on.

    The micro-batches of a step are assigned to the devices round-robin.
    """

    def __init__(self, batches: Batches, steps: TrainingSteps, first_step: int, rank: int) -> None:
        self.batches, self.steps, self.first_step, self.rank = batches, steps, first_step, rank

    def __iter__(self) -> Iterator[MicroBatch]:
        for step in range(self.first_step, self.steps.total):
            inputs, targets = self.batches.batch(step, self.steps.sequences)
            # The loss of a step is the mean over all of its targets, however it is split.
            num_micro_batches = self.steps.accumulation_steps * self.steps.devices
            targets_per_micro_batch = int((targets != IGNORE_INDEX).sum()) / num_micro_batches
            size = self.steps.micro_batch_size
            micro_batches = zip(inputs.split(size), targets.split(size), strict=True)
            for micro_batch in islice(micro_batches, self.rank, None, self.steps.devices):
                yield (*micro_batch, targets_per_micro_batch)


def micro_batch_loader(
    batches: Batches, steps: TrainingSteps, first_step: int, rank: int = 0
) -> DataLoader:
    """Return a DataLoader of the micro-batches of device `rank` from `first_step` on."""
    return DataLoader(MicroBatches(batches, steps, first_step, rank), batch_size=None)
