"""Flip-flop: every read must return the bit that was written last.

Liu et al. 2023 (arXiv:2306.00946, definition 1): instructions w (write), r (read) and i (ignore),
each followed by a bit. The first is a write and the last a read. Any other is i with probability
`ignore`, and otherwise w or r. Only the bits of reads are scored, because the others are random.
The paper trains with ignore=0.8 and also tests with 0.98 (sparse) and 0.1 (dense).

    w 1 i 0 r|1 i 0 i 1 r|1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.task import Example, SeededRandom, Task

WRITE, READ, IGNORE, FIRST_BIT = 1, 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class FlipFlop(Task):
    """Size n: n + 1 instructions, each with its bit; 2n + 2 tokens."""

    name = "flip_flop"
    ignore: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ignore <= 1:
            raise ValueError(f"ignore={self.ignore} is a probability and must be between 0 and 1")

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("<begin>", "w", "r", "i", "0", "1")

    @property
    def chance(self) -> float:
        return 1 / 2

    def sequence_length(self, size: int) -> int:
        return 2 * size + 2

    def generate(self, random: SeededRandom, size: int) -> Example:
        ignored = random.uniform(size + 1) < self.ignore
        instructions = np.where(ignored, IGNORE, WRITE + random.integers(2, size + 1))
        instructions[0], instructions[-1] = WRITE, READ
        bits = FIRST_BIT + random.integers(2, size + 1)
        reads = instructions == READ
        indices = np.arange(size + 1)
        last_write = np.maximum.accumulate(np.where(instructions == WRITE, indices, 0))
        bits = np.where(reads, bits[last_write], bits)
        tokens = np.stack([instructions, bits], axis=1).ravel()
        return Example(tokens, np.stack([np.zeros_like(reads), reads], axis=1).ravel())
