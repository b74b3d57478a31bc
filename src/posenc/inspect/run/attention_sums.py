"""Attention and scores by distance and by the query's position, for every layer and head.

Sums are float64. Distances are in tokens, regardless of the positions that the encoding uses.

For statistics of scores within and beyond the training length, a pair of a query i and a key j <= i
is `within` if i < L. If the query is beyond L, the pair is `near` if i - j < L (training covers the
distance, but not the position) and `far` otherwise. Absolute encodings tend to fail on `near`
pairs, and relative encodings on `far` pairs.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.encodings.fox import CumulativeBias
from posenc.encodings.wrapper import innermost_encoding
from posenc.inspect.run.observe import ObservedBlock, tensor_rows
from posenc.runs.row_types import Row

MIN_DIVISOR = 1e-300
NUM_SINGLE_DISTANCES = 32  # each has its own row; longer distances share rows
ROWS_PER_OCTAVE = 8
NUM_POSITION_ROWS = 64  # approximately
MEANS = ("entropy", "first", "distance", "beyond")
REGIONS = ("within", "near", "far")


class AttentionByDistance:
    """Attention and bias by distance, summed over the queries from index `first_query` on.

    `weights` and `bias` [layers, H, T] are sums over pairs of a query and a key, and `pairs`
    [layers, T] counts these pairs.
    """

    def __init__(self, layers: int, heads: int, length: int, first_query: int) -> None:
        self.first_query, self.num_queries = first_query, 0
        self.weights = torch.zeros(layers, heads, length, dtype=torch.float64)
        self.bias = torch.zeros_like(self.weights)
        self.pairs = torch.zeros(layers, length, dtype=torch.float64)

    def observe(self, block: ObservedBlock) -> None:
        counted = block.mask & (block.query_index >= self.first_query)
        distance, layer = block.distance[counted].cpu(), block.layer
        batch = len(block.inputs.q)
        self.weights[layer].index_add_(1, distance, block.weights.sum(0)[:, counted].cpu())
        self.pairs[layer] += batch * distance.bincount(minlength=self.pairs.shape[1])
        if layer == 0:
            self.num_queries += batch * int((block.query_index >= self.first_query).sum())
        if block.bias is not None:
            bias = block.bias.double().expand(batch, -1, -1, -1).sum(0)
            self.bias[layer].index_add_(1, distance, bias[:, counted].cpu())

    def fractions(self) -> Tensor:
        """Return the mean fraction of a query's attention at each distance [layers, H, T]."""
        return self.weights / self.num_queries

    def rows(self, train_length: int) -> list[Row]:
        """Return a row for each layer, head and range of distances, `start` to `stop` - 1.

        `attention` is the mean fraction of a query's attention that goes to keys in the range,
        `per_key` the mean weight of one key, and `bias` the mean bias of one key.
        """
        edges = distance_edges(self.weights.shape[-1], train_length)
        pairs = _bin_sums(self.pairs, edges).clamp(min=1)[:, None]
        values = {
            "attention": _bin_sums(self.fractions(), edges),
            "per_key": _bin_sums(self.weights, edges) / pairs,
            "bias": _bin_sums(self.bias, edges) / pairs,
        }
        return _bin_rows(edges, values)


class AttentionByPosition:
    """Sums over windows [layers, H, T], indexed by the query's position.

    `entropy` is the entropy of the weights in nats, `first` the weight of the window's first token,
    `distance` the mean distance in tokens, and `beyond` the weight of keys at distances of L or
    more.
    """

    def __init__(self, layers: int, heads: int, length: int, train_length: int) -> None:
        self.train_length, self.num_windows = train_length, 0
        shape = layers, heads, length
        self.entropy, self.first, self.distance, self.beyond = (
            torch.zeros(shape, dtype=torch.float64) for _ in MEANS
        )

    def observe(self, block: ObservedBlock) -> None:
        layer, rows = block.layer, block.rows
        if layer == 0 and rows.start == 0:
            self.num_windows += len(block.inputs.q)
        weights, distance = block.weights, block.distance.clamp(min=0).double()
        self.entropy[layer, :, rows] += torch.special.entr(weights).sum((0, -1)).cpu()
        self.distance[layer, :, rows] += (weights * distance).sum((0, -1)).cpu()
        beyond = weights * (distance >= self.train_length)
        self.beyond[layer, :, rows] += beyond.sum((0, -1)).cpu()
        if block.keys.start == 0:
            self.first[layer, :, rows] += weights[..., 0].sum(0).cpu()

    def rows(self) -> list[Row]:
        """Return rows with means over the queries at positions `start` to `stop` - 1."""
        edges = position_edges(self.entropy.shape[-1], self.train_length)
        num_queries = torch.tensor(edges).diff() * self.num_windows
        means = {name: _bin_sums(getattr(self, name), edges) / num_queries for name in MEANS}
        return _bin_rows(edges, means)


def head_rows(
    by_distance: AttentionByDistance, by_position: AttentionByPosition, at_train_length: Tensor
) -> list[Row]:
    """Return a row for each head, with means over the queries that `by_distance` includes.

    `shift` compares attention at distances below L/2, or below half the length of the windows if
    that is less, with `at_train_length` [layers, H, L], the fractions in windows of L. All these
    queries have keys at these distances.
    """
    fractions, first_query = by_distance.fractions(), by_distance.first_query
    means = {
        name: getattr(by_position, name)[..., first_query:].mean(-1) / by_position.num_windows
        for name in MEANS
    }
    num_distances = max(1, min(at_train_length.shape[-1], fractions.shape[-1]) // 2)
    shift = total_variation(at_train_length, fractions, num_distances)
    nearest = {"self": fractions[..., 0], "previous": fractions[..., 1]}
    columns = {**means, **nearest, "shift": shift}
    return tensor_rows({"length": fractions.shape[-1]}, ("layer", "head"), columns)


def total_variation(a: Tensor, b: Tensor, num_distances: int) -> Tensor:
    """Return the total variation distance [...], 0 to 1, over the first `num_distances` distances.

    The fractions of attention a [..., T] and b [..., T'] are first divided by their sums over these
    distances, so that attention that is spread evenly over more keys counts as unchanged.
    """
    a, b = (
        nearest / nearest.sum(-1, keepdim=True).clamp(min=MIN_DIVISOR)
        for nearest in (a[..., :num_distances], b[..., :num_distances])
    )
    return (a - b).abs().sum(-1) / 2


def distance_edges(length: int, train_length: int) -> list[int]:
    """Return the first distance of each row, and `length`; a row starts at L if `length` > L."""
    steps = range(ROWS_PER_OCTAVE * length.bit_length())
    range_starts = {round(NUM_SINGLE_DISTANCES * 2 ** (step / ROWS_PER_OCTAVE)) for step in steps}
    edges = {*range(NUM_SINGLE_DISTANCES), *range_starts, train_length, length}
    return sorted(edge for edge in edges if edge <= length)


def position_edges(length: int, train_length: int) -> list[int]:
    """Return the first position of each row, and `length`; most rows have the same size."""
    step = max(1, length // NUM_POSITION_ROWS)
    return sorted(n for n in {*range(0, length, step), train_length, length} if n <= length)


def _bin_sums(values: Tensor, edges: Sequence[int]) -> Tensor:
    """Return the sums of `values` [..., T] between consecutive edges."""
    return torch.stack([values[..., a:b].sum(-1) for a, b in itertools.pairwise(edges)], dim=-1)


def _bin_rows(edges: Sequence[int], values: dict[str, Tensor]) -> list[Row]:
    bins = {"start": torch.tensor(edges[:-1]), "stop": torch.tensor(edges[1:])}
    return tensor_rows({"length": edges[-1]}, ("layer", "head"), bins | values)


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

    def observe(self, block: ObservedBlock) -> None:
        beyond, far = block.query_index >= self.train_length, block.distance >= self.train_length
        masks = block.mask & ~beyond, block.mask & beyond & ~far, block.mask & far
        for region, mask in enumerate(masks):
            if not mask.any():
                continue
            index = block.layer, slice(None), region
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

    def observe(self, block: ObservedBlock) -> None:
        encoding = innermost_encoding(block.encoding)
        is_first_block = block.layer == self.layer and block.rows.start == 0
        if not is_first_block or not isinstance(encoding, CumulativeBias):
            return
        _, sums = encoding.weights_and_sums(block.inputs.x)
        logs = sums.squeeze(-1).diff(dim=-1).cpu()  # [B, H, T - 1]; the first gate has no effect
        self.count += logs.shape[0] * logs.shape[2]
        self.sum += logs.sum((0, 2))
        self.squares += logs.square().sum((0, 2))
        self.below_half += (logs < torch.tensor(0.5).log()).sum((0, 2))

    def mean(self) -> Tensor:
        """Return the mean bias per token [H]; every 1 / |mean| tokens, scores fall by about 1."""
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
