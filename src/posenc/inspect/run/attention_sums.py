"""Attention by distance and by the query's position, in every layer and head.

Sums are in float64. Distances are in tokens, whatever positions the encoding uses.
"""

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from posenc.inspect.run.observe import QueryBlock, Row

TINY = 1e-300  # the smallest divisor
SINGLE_DISTANCES = 32  # with a row of their own; longer distances share rows
ROWS_PER_OCTAVE = 8
POSITION_ROWS = 64
MEANS = ("entropy", "first", "distance", "beyond")


class AttentionByDistance:
    """Attention and bias by distance, of queries from index `first` on.

    `weights` and `bias` [layers, H, T] are sums over pairs of a query and a key, `pairs`
    [layers, T] their numbers.
    """

    def __init__(self, layers: int, heads: int, length: int, first: int) -> None:
        self.first, self.queries = first, 0
        self.weights = torch.zeros(layers, heads, length, dtype=torch.float64)
        self.bias = torch.zeros_like(self.weights)
        self.pairs = torch.zeros(layers, length, dtype=torch.float64)

    def observe(self, block: QueryBlock) -> None:
        counted = block.mask & (block.query >= self.first)
        distance, layer = block.distance[counted].cpu(), block.layer.index
        batch = len(block.layer.q)
        self.weights[layer].index_add_(1, distance, block.weights.sum(0)[:, counted].cpu())
        self.pairs[layer] += batch * distance.bincount(minlength=self.pairs.shape[1])
        if layer == 0:
            self.queries += batch * int((block.query >= self.first).sum())
        if block.bias is not None:
            bias = block.bias.double().expand(batch, -1, -1, -1).sum(0)
            self.bias[layer].index_add_(1, distance, bias[:, counted].cpu())

    def fractions(self) -> Tensor:
        """Return the fraction of a query's attention at each distance [layers, H, T]."""
        return self.weights / self.queries

    def rows(self, train_length: int) -> list[Row]:
        """Return rows for distances `start` to `stop` - 1.

        `attention` is the fraction of a query's attention, `per_key` the mean weight of one key,
        `bias` its mean bias.
        """
        length = self.weights.shape[-1]
        edges = distance_edges(length, train_length)
        pairs = _bin_sums(self.pairs, edges).clamp(min=1)[:, None]
        values = {
            "attention": _bin_sums(self.fractions(), edges),
            "per_key": _bin_sums(self.weights, edges) / pairs,
            "bias": _bin_sums(self.bias, edges) / pairs,
        }
        return list(_bin_rows(length, edges, values))


class AttentionByPosition:
    """Sums over windows by the query's position [layers, H, T].

    `entropy` of the weights in nats, `first` the weight of the window's first token, `distance`
    the mean distance in tokens, `beyond` the weight of keys at distances of L or more.
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
        """Return means over the queries at positions `start` to `stop` - 1."""
        length = self.entropy.shape[-1]
        edges = position_edges(length, self.train_length)
        queries = torch.tensor(edges).diff() * self.windows
        means = {name: _bin_sums(getattr(self, name), edges) / queries for name in MEANS}
        return list(_bin_rows(length, edges, means))


def head_rows(
    distances: AttentionByDistance, positions: AttentionByPosition, at_train_length: Tensor
) -> list[Row]:
    """Return a row for each head: means over the queries that `distances` counts.

    `shift` compares the attention to the nearer half of L with the fractions `at_train_length`
    [layers, H, L].
    """
    fractions = distances.fractions()
    means = {
        name: getattr(positions, name)[..., distances.first :].mean(-1) / positions.windows
        for name in MEANS
    }
    shift = total_variation(at_train_length, fractions, max(1, at_train_length.shape[-1] // 2))
    return [
        {"length": fractions.shape[-1], **head}
        | {name: float(mean[at]) for name, mean in means.items()}
        | {"self": float(fractions[at][0]), "previous": float(fractions[at][1])}
        | {"shift": float(shift[at])}
        for at, head in each_head(fractions)
    ]


def total_variation(a: Tensor, b: Tensor, near: int) -> Tensor:
    """Return the total variation [..] of attention over the first `near` distances, 0 to 1.

    The fractions [.., T] and [.., T'] are divided by their sums over these distances, so that
    attention that is spread evenly over more keys counts as unchanged.
    """
    first, second = (
        fractions[..., :near] / fractions[..., :near].sum(-1, keepdim=True).clamp(min=TINY)
        for fractions in (a, b)
    )
    return (first - second).abs().sum(-1) / 2


def distance_edges(length: int, train_length: int) -> list[int]:
    """Return the first distance of each row, and the end; the training length is an edge."""
    octaves = range(ROWS_PER_OCTAVE * length.bit_length())
    wide = {round(SINGLE_DISTANCES * 2 ** (i / ROWS_PER_OCTAVE)) for i in octaves}
    edges = {*range(SINGLE_DISTANCES), *wide, train_length, length}
    return sorted(edge for edge in edges if edge <= length)


def position_edges(length: int, train_length: int) -> list[int]:
    """Return the same for positions, in rows of about the same size."""
    step = max(1, length // POSITION_ROWS)
    return sorted(n for n in {*range(0, length, step), train_length, length} if n <= length)


def each_head(values: Tensor) -> Iterator[tuple[tuple[int, int], Row]]:
    """Yield every layer and head of [layers, H, ..], as an index and as the start of a row."""
    for layer, head in itertools.product(range(values.shape[0]), range(values.shape[1])):
        yield (layer, head), {"layer": layer, "head": head}


def _bin_sums(values: Tensor, edges: Sequence[int]) -> Tensor:
    """Return the sums of [.., T] from each edge to the next."""
    return torch.stack([values[..., a:b].sum(-1) for a, b in itertools.pairwise(edges)], dim=-1)


def _bin_rows(length: int, edges: Sequence[int], values: dict[str, Tensor]) -> Iterator[Row]:
    for at, head in each_head(next(iter(values.values()))):
        for n, (start, stop) in enumerate(itertools.pairwise(edges)):
            row: Row = {"length": length, **head, "start": start, "stop": stop}
            yield row | {name: float(value[at][n]) for name, value in values.items()}
