"""Statistics of scores within and beyond the training length, and of forget gates.

A pair of a query i and a key j <= i is `within` if i < L. If the query is beyond L, the pair is
`near` if i - j < L (training covers the distance, but not the position) and `far` otherwise.
Absolute encodings tend to fail on `near` pairs, and relative encodings on `far` pairs.
"""

import torch
from torch import Tensor

from posenc.encodings.fox import CumulativeBias
from posenc.encodings.wrapper import innermost_encoding
from posenc.inspect.run.observe import QueryBlock, Row, tensor_rows

REGIONS = ("within", "near", "far")


class ScoreRegions:
    """Count, mean, standard deviation and extremes of scores by region, [layers, H, regions]."""

    def __init__(self, layers: int, heads: int, train_length: int) -> None:
        self.train_length = train_length
        shape = layers, heads, len(REGIONS)
        self.count, self.sum, self.squares = (
            torch.zeros(shape, dtype=torch.float64) for _ in range(3)
        )
        self.min = torch.full(shape, torch.inf, dtype=torch.float64)
        self.max = -self.min

    def observe(self, block: QueryBlock) -> None:
        beyond, far = block.query_index >= self.train_length, block.distance >= self.train_length
        masks = block.mask & ~beyond, block.mask & beyond & ~far, block.mask & far
        for region, mask in enumerate(masks):
            if not mask.any():
                continue
            index = block.layer.index, slice(None), region
            scores = block.scores[..., mask].double().transpose(0, 1).flatten(1).cpu()  # [H, pairs]
            self.count[index] += scores.shape[1]
            self.sum[index] += scores.sum(1)
            self.squares[index] += scores.square().sum(1)
            self.min[index] = torch.minimum(self.min[index], scores.amin(1))
            self.max[index] = torch.maximum(self.max[index], scores.amax(1))

    def mean(self) -> Tensor:
        """Return the means, NaN for a region without pairs."""
        return self.sum / self.count

    def std(self) -> Tensor:
        """Return the standard deviations, NaN for a region without pairs."""
        return (self.squares / self.count - self.mean().square()).clamp(min=0).sqrt()

    def rows(self, length: int) -> list[Row]:
        """Return a row for each head and region that has pairs."""
        columns = {
            "pairs": self.count.long(),
            "mean": self.mean(),
            "std": self.std(),
            "min": self.min,
            "max": self.max,
        }
        rows = tensor_rows({"length": length}, ("layer", "head", "region"), columns)
        return [row | {"region": REGIONS[row["region"]]} for row in rows if row["pairs"]]


class ForgetGates:
    """Statistics [H] of the bias per token in one layer.

    The bias per token is ln f for a forget gate f (FoX, CABLE), and -ReLU(c_h . x_l) for
    `cable_paper`, without the query's factor g_h. `below_half` counts the gates below 1/2.
    """

    def __init__(self, layer: int, heads: int) -> None:
        self.layer, self.count = layer, 0
        self.sum, self.squares, self.below_half = (
            torch.zeros(heads, dtype=torch.float64) for _ in range(3)
        )

    def observe(self, block: QueryBlock) -> None:
        encoding, layer = innermost_encoding(block.layer.encoding), block.layer
        is_first_block = layer.index == self.layer and block.rows.start == 0
        if not is_first_block or not isinstance(encoding, CumulativeBias):
            return
        _, sums = encoding.weights_and_sums(layer.x)
        logs = sums.squeeze(-1).diff(dim=-1).cpu()  # [B, H, T - 1]; the first gate has no effect
        self.count += logs.shape[0] * logs.shape[2]
        self.sum += logs.sum((0, 2))
        self.squares += logs.square().sum((0, 2))
        self.below_half += (logs < torch.tensor(0.5).log()).sum((0, 2))

    def mean(self) -> Tensor:
        """Return the mean bias per token [H]; scores decrease by about 1 over 1 / |mean| tokens."""
        return self.sum / self.count

    def std(self) -> Tensor:
        return (self.squares / self.count - self.mean().square()).clamp(min=0).sqrt()

    def rows(self, length: int) -> list[Row]:
        """Return a row for each head, or no rows if the encoding has no gates."""
        if not self.count:
            return []
        below_half = self.below_half / self.count
        columns = {"mean_log": self.mean(), "std_log": self.std(), "below_half": below_half}
        return tensor_rows({"length": length, "layer": self.layer}, ("head",), columns)
