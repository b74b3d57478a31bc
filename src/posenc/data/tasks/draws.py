"""Random numbers from a seed, the same in every version of numpy."""

import hashlib

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Draws:
    """A stream of draws that `name` decides, words and numbers that say what is drawn.

    Made from raw bits, whose stream numpy never changes, unlike that of its distributions.
    """

    def __init__(self, *name: str | int) -> None:
        digest = hashlib.sha256(":".join(map(str, name)).encode()).digest()
        self._bits = np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest[:16])))

    def below(self, limit: int, count: int) -> Ints:
        """`count` numbers from 0 to `limit` - 1, each as likely as another to 2^-32."""
        high = self._bits.random_raw(count) >> np.uint64(32)
        return (high * np.uint64(limit) >> np.uint64(32)).astype(np.int64)

    def one(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        return int(self.below(limit, 1)[0])

    def shares(self, count: int) -> NDArray[np.float64]:
        """`count` numbers strictly between 0 and 1, uniform."""
        high = (self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64)
        return (high + 0.5) * 2.0**-53

    def distinct(self, limit: int, count: int) -> Ints:
        """`count` different numbers below `limit`, in random order."""
        return np.argsort(self._bits.random_raw(limit), kind="stable")[:count]
