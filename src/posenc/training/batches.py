"""The training batches in their order, from any step on."""

from collections.abc import Iterator

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from posenc.data.windows import TrainingWindows


class Batches(IterableDataset):
    """Micro-batches `first` to `last` (exclusive): a function of seed and number alone."""

    def __init__(self, windows: TrainingWindows, size: int, first: int, last: int) -> None:
        self.windows, self.size, self.first, self.last = windows, size, first, last

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(self.first, self.last):
            yield self.windows.batch(number, self.size)


def loader(windows: TrainingWindows, size: int, first: int, last: int) -> DataLoader:
    """A loader of micro-batches of `size` windows: inputs and targets, int64 [size, T] each."""
    return DataLoader(Batches(windows, size, first, last), batch_size=None)
