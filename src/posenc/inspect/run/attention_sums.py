"""Attention by distance and by the query's position, for every layer and head.

Sums are float64. Distances are in tokens, regardless of the positions that the encoding uses.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.inspect.run.observe import QueryBlock, Row, tensor_rows

MIN_DIVISOR = 1e-300
NUM_SINGLE_DISTANCES = 32  # each has its own row; longer distances share rows
ROWS_PER_OCTAVE = 8
NUM_POSITION_ROWS = 64  # approximately
MEANS = ("entropy", "first", "distance", "beyond")


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

    def observe(self, block: QueryBlock) -> None:
        counted = block.mask & (block.query_index >= self.first_query)
        distance, layer = block.distance[counted].cpu(), block.layer.index
        batch = len(block.layer.q)
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
        self.train_length, self.windows = train_length, 0
        shape = layers, heads, length
        self.entropy, self.first, self.distance, self.beyond = (
            torch.zeros(shape, dtype=torch.float64) for _ in MEANS
        )

    def observe(self, block: QueryBlock) -> None:
        layer, rows = block.layer.index, block.rows
        if layer == 0 and rows.start == 0:
            self.windows += len(block.layer.q)
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
        num_queries = torch.tensor(edges).diff() * self.windows
        means = {name: _bin_sums(getattr(self, name), edges) / num_queries for name in MEANS}
        return _bin_rows(edges, means)


def head_rows(
    distances: AttentionByDistance, positions: AttentionByPosition, at_train_length: Tensor
) -> list[Row]:
    """Return a row for each head, with means over the queries that `distances` includes.

    `shift` compares attention at distances below L/2, or below the length of the windows if that is
    less, with `at_train_length` [layers, H, L], the fractions in windows of L.
    """
    fractions = distances.fractions()
    means = {
        name: getattr(positions, name)[..., distances.first_query :].mean(-1) / positions.windows
        for name in MEANS
    }
    compared = max(1, min(at_train_length.shape[-1] // 2, fractions.shape[-1]))
    shift = total_variation(at_train_length, fractions, compared)
    nearest = {"self": fractions[..., 0], "previous": fractions[..., 1]}
    columns = {**means, **nearest, "shift": shift}
    return tensor_rows({"length": fractions.shape[-1]}, ("layer", "head"), columns)


def total_variation(a: Tensor, b: Tensor, num_distances: int) -> Tensor:
    """Return the total variation distance [..], 0 to 1, over the first `num_distances` distances.

    The fractions of attention a [.., T] and b [.., T'] are first divided by their sums over these
    distances, so that attention that is spread evenly over more keys counts as unchanged.
    """
    a, b = (
        nearest / nearest.sum(-1, keepdim=True).clamp(min=MIN_DIVISOR)
        for nearest in (a[..., :num_distances], b[..., :num_distances])
    )
    return (a - b).abs().sum(-1) / 2


def distance_edges(length: int, train_length: int) -> list[int]:
    """Return the first distance of each row, and `length`; a row starts at the training length."""
    steps = range(ROWS_PER_OCTAVE * length.bit_length())
    range_starts = {round(NUM_SINGLE_DISTANCES * 2 ** (step / ROWS_PER_OCTAVE)) for step in steps}
    edges = {*range(NUM_SINGLE_DISTANCES), *range_starts, train_length, length}
    return sorted(edge for edge in edges if edge <= length)


def position_edges(length: int, train_length: int) -> list[int]:
    """Return the first position of each row, and `length`; most rows have the same size."""
    step = max(1, length // NUM_POSITION_ROWS)
    return sorted(n for n in {*range(0, length, step), train_length, length} if n <= length)


def _bin_sums(values: Tensor, edges: Sequence[int]) -> Tensor:
    """Return the sums of `values` [.., T] between consecutive edges."""
    return torch.stack([values[..., a:b].sum(-1) for a, b in itertools.pairwise(edges)], dim=-1)


def _bin_rows(edges: Sequence[int], values: dict[str, Tensor]) -> list[Row]:
    bins = {"start": torch.tensor(edges[:-1]), "stop": torch.tensor(edges[1:])}
    return tensor_rows({"length": edges[-1]}, ("layer", "head"), bins | values)
