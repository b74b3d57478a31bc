"""Where attention goes: by distance, by the query's position, in every layer and head.

Everything is summed in float64. Distances are counted in tokens, whatever coordinates the
encoding gives them.
"""

import torch
from torch import Tensor

from posenc.inspect.run.watch import Rows

TINY = 1e-300  # of a sum that is divided by


class ByDistance:
    """Attention and added score by distance, of queries with at least `first` tokens before them.

    `weights` and `added` [layers, H, T] are sums over queries, `pairs` [layers, T] numbers of
    query and key at that distance.
    """

    def __init__(self, layers: int, heads: int, length: int, first: int) -> None:
        self.first = first
        self.queries = 0
        self.weights = torch.zeros(layers, heads, length, dtype=torch.float64)
        self.added = torch.zeros_like(self.weights)
        self.pairs = torch.zeros(layers, length, dtype=torch.float64)

    def see(self, rows: Rows) -> None:
        counted = rows.seen & (rows.query >= self.first)
        distance, layer = rows.distance[counted].cpu(), rows.layer.index
        batch = len(rows.layer.q)
        self.weights[layer].index_add_(1, distance, rows.weights.sum(0)[:, counted].cpu())
        self.pairs[layer] += batch * distance.bincount(minlength=self.pairs.shape[1])
        if layer == 0:
            self.queries += batch * int((rows.query >= self.first).sum())
        if rows.added is not None:
            added = rows.added.double().expand(batch, -1, -1, -1).sum(0)
            self.added[layer].index_add_(1, distance, added[:, counted].cpu())

    def shares(self) -> Tensor:
        """The share of a query's attention at each distance [layers, H, T], summing to 1."""
        return self.weights / self.queries


class ByPosition:
    """Sums over windows for each query's position [layers, H, T].

    `entropy` of the weights in nats, `first` the weight of the window's first token, `distance`
    the mean distance of attention in tokens, `past` the weight of keys `train_length` or more back.
    """

    def __init__(self, layers: int, heads: int, length: int, train_length: int) -> None:
        self.train_length, self.windows = train_length, 0
        shape = layers, heads, length
        self.entropy, self.first, self.distance, self.past = (
            torch.zeros(shape, dtype=torch.float64) for _ in range(4)
        )

    def see(self, rows: Rows) -> None:
        layer, at = rows.layer.index, rows.rows
        if layer == 0 and at.start == 0:
            self.windows += len(rows.layer.q)
        weights, behind = rows.weights, rows.distance.clamp(min=0).double()
        self.entropy[layer, :, at] += torch.special.entr(weights).sum((0, -1)).cpu()
        self.distance[layer, :, at] += (weights * behind).sum((0, -1)).cpu()
        self.past[layer, :, at] += (weights * (behind >= self.train_length)).sum((0, -1)).cpu()
        if rows.keys.start == 0:
            self.first[layer, :, at] += weights[..., 0].sum(0).cpu()


def moved(here: Tensor, there: Tensor, near: int) -> Tensor:
    """How much of the attention to the `near` distances lies at others of them, 0 to 1 [..].

    The total variation of two sets of shares [.., T] and [.., T'], each divided by what it has in
    its first `near` distances: attention that thins out evenly has not moved.
    """
    one, other = (
        shares[..., :near] / shares[..., :near].sum(-1, keepdim=True).clamp(min=TINY)
        for shares in (here, there)
    )
    return (one - other).abs().sum(-1) / 2
