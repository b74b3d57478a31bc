"""A cache for biases that several layers share within one forward pass."""

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager

from torch import Tensor

_caches: list[tuple[int, dict[Hashable, Tensor]]] = []


@contextmanager
def bias_cache(num_encodings: int) -> Generator[None]:
    """Cache biases during a forward pass whose layers have `num_encodings` different encodings."""
    _caches.append((num_encodings, {}))
    try:
        yield
    finally:
        _caches.pop()


def num_encodings(layers: int) -> int:
    """Return `num_encodings` of the active `bias_cache`, or `layers` if none is active."""
    return _caches[-1][0] if _caches else layers


def cached_bias(key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
    """Return the bias for `key`; within a `bias_cache`, it is computed only once."""
    if not _caches:
        return compute()
    _, biases = _caches[-1]
    if key not in biases:
        biases[key] = compute()
    return biases[key]
