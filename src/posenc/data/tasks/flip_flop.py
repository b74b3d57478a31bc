"""Flip-flop: every read must give the bit that was written last.

Liu et al. 2023 (2306.00946, definition 1): instructions w (write), r (read) and i (ignore), each
followed by a bit. The first is a write, the last a read; between them an instruction is i with
probability `ignore`, else w or r. Only the bits of reads are scored: the others are random. The
paper trains at ignore=0.8 and tests at 0.98 (sparse) and 0.1 (dense) too.

    w 1 i 0 r|1 i 0 i 1 r|1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.draws import Draws
from posenc.data.tasks.task import Example, Task

WRITE, READ, IGNORE, BITS = 1, 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class FlipFlop(Task):
    """Size n: n + 1 instructions with their bits; 2n + 2 tokens."""

    name = "flip_flop"
    ignore: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ignore <= 1:
            raise ValueError(f"ignore={self.ignore} is a probability; give 0 to 1")

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("<begin>", "w", "r", "i", "0", "1")

    def tokens(self, size: int) -> int:
        return 2 * size + 2

    def draw(self, draws: Draws, size: int) -> Example:
        ignored = draws.shares(size + 1) < self.ignore
        instructions = np.where(ignored, IGNORE, WRITE + draws.below(2, size + 1))
        instructions[0], instructions[-1] = WRITE, READ
        bits = BITS + draws.below(2, size + 1)
        reads = instructions == READ
        places = np.arange(size + 1)
        written = np.maximum.accumulate(np.where(instructions == WRITE, places, 0))
        bits = np.where(reads, bits[written], bits)
        tokens = np.stack([instructions, bits], axis=1).ravel()
        return Example(tokens, np.stack([np.zeros_like(reads), reads], axis=1).ravel())
