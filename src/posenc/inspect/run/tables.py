"""Sums of an observation as rows, one for each layer and head and what is counted by.

Layers and heads are numbered from 0. `length` is that of the windows, in tokens.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from posenc.inspect.run.attention import ByDistance, ByPosition, moved
from posenc.inspect.run.gates import Gates
from posenc.inspect.run.rotary import Frequencies
from posenc.inspect.run.scores import REGIONS, Scores

Row = dict[str, Any]
SINGLE = 32  # distances, each a row of its own; from there on so many rows
PER_DOUBLING = 8
POSITIONS = 64  # rows of positions
PER_QUERY = ("entropy", "first", "distance", "past")


def distance_edges(length: int, train_length: int) -> list[int]:
    """From which distance each row counts, and the end; the training length is one of them."""
    doublings = range(PER_DOUBLING * length.bit_length())
    wider = {round(SINGLE * 2 ** (i / PER_DOUBLING)) for i in doublings}
    return sorted(n for n in {*range(SINGLE), *wider, train_length, length} if n <= length)


def position_edges(length: int, train_length: int) -> list[int]:
    """The same for positions, all rows about as wide."""
    step = max(1, length // POSITIONS)
    return sorted(n for n in {*range(0, length, step), train_length, length} if n <= length)


def by_distance(length: int, found: ByDistance, train_length: int) -> list[Row]:
    """`attention` is the share of a query's attention, `per_key` the mean weight of one key and
    `added` the mean score that the encoding adds to it, at distances `start` to `stop` - 1."""
    edges = distance_edges(length, train_length)
    pairs = _summed(found.pairs, edges)
    shares = _summed(found.shares(), edges)
    per_key, added = (
        _summed(sums, edges) / pairs.clamp(min=1)[:, None] for sums in (found.weights, found.added)
    )
    return [
        {
            "length": length,
            **head,
            "start": start,
            "stop": stop,
            "attention": float(shares[at][n]),
            "per_key": float(per_key[at][n]),
            "added": float(added[at][n]),
        }
        for at, head in _heads(shares)
        for n, (start, stop) in enumerate(itertools.pairwise(edges))
    ]


def by_position(length: int, found: ByPosition, train_length: int) -> list[Row]:
    """Means over queries at positions `start` to `stop` - 1 of what ByPosition sums."""
    edges = position_edges(length, train_length)
    width = torch.tensor(edges).diff() * found.windows
    means = {name: _summed(getattr(found, name), edges) / width for name in PER_QUERY}
    return [
        {"length": length, **head, "start": start, "stop": stop}
        | {name: float(mean[at][n]) for name, mean in means.items()}
        for at, head in _heads(means["entropy"])
        for n, (start, stop) in enumerate(itertools.pairwise(edges))
    ]


def heads(
    length: int, distances: ByDistance, positions: ByPosition, at_length: Tensor
) -> list[Row]:
    """A head in a line: means over the queries that `distances` counts, and how much of their
    attention to the nearer half of L has moved from the shares [layers, H, L] `at_length`."""
    shares = distances.shares()
    means = {
        name: getattr(positions, name)[..., distances.first :].mean(-1) / positions.windows
        for name in PER_QUERY
    }
    change = moved(at_length, shares, max(1, at_length.shape[-1] // 2))
    return [
        {"length": length, **head}
        | {name: float(mean[at]) for name, mean in means.items()}
        | {"own": float(shares[at][0]), "previous": float(shares[at][1])}
        | {"moved": float(change[at])}
        for at, head in _heads(shares)
    ]


def scores(length: int, found: Scores) -> list[Row]:
    """Regions without pairs are left out."""
    means, stds = found.mean(), found.std()
    return [
        {
            "length": length,
            **head,
            "region": region,
            "pairs": int(found.count[at][n]),
            "mean": float(means[at][n]),
            "std": float(stds[at][n]),
            "lowest": float(found.lowest[at][n]),
            "highest": float(found.highest[at][n]),
        }
        for at, head in _heads(means)
        for n, region in enumerate(REGIONS)
        if found.count[at][n]
    ]


def frequencies(length: int, layers: Sequence[Frequencies]) -> list[Row]:
    """`turns` are those of a whole window of the length."""
    rows: list[Row] = []
    for found in layers:
        norm, variation = found.shares()
        for head, number in itertools.product(range(len(norm)), range(norm.shape[1])):
            frequency = float(found.turning.frequencies[number])
            rows.append(
                {
                    "length": length,
                    "layer": found.layer,
                    "head": head,
                    "number": number,
                    "frequency": frequency,
                    "turns": length * frequency / (2 * torch.pi),
                    "norm": float(norm[head, number]),
                    "variation": float(variation[head, number]),
                }
            )
    return rows


def gates(length: int, layers: Sequence[Gates]) -> list[Row]:
    """Layers whose encoding has no gates are left out."""
    return [
        {
            "length": length,
            "layer": found.layer,
            "head": head,
            "mean_log": float(found.mean()[head]),
            "std_log": float(found.std()[head]),
            "below_half": float(found.below_half()[head]),
        }
        for found in layers
        if found.count
        for head in range(len(found.sum))
    ]


def _heads(values: Tensor) -> Iterator[tuple[tuple[int, int], Row]]:
    """Every layer and head of [layers, H, ..], as an index and as a row's beginning."""
    for at in itertools.product(range(values.shape[0]), range(values.shape[1])):
        yield at, {"layer": at[0], "head": at[1]}


def _summed(values: Tensor, edges: Sequence[int]) -> Tensor:
    """Sums of [.., T] from each edge to the next."""
    return torch.stack([values[..., a:b].sum(-1) for a, b in itertools.pairwise(edges)], dim=-1)
