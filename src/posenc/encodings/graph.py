"""Encodings of a graph's nodes, added to the hidden states; the data computes them from the edges.

    random_walk   x_i + C p_i + c,   p_i = (P_ii, (P^2)_ii, .., (P^walk_length)_ii),   P = A D^-1
    degree        x_i + z[deg(i)]

A [B, T, T] are adjacency matrices, D their degrees; the coordinates are p [B, T, walk_length] and
deg [B, T, 1], in float64. Dwivedi et al. 2022 (2110.07875) process C p + c in parallel with x; here
it is added, as Graphormer adds the degree (Ying et al. 2021, 2106.05234, eq. 5, whose two tables
coincide for undirected edges).

The tokens of a text are the nodes of a path graph. Its ends differ from its inner nodes, so that
the last tokens of a text show how long it is.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry

LAST_NODE = "the last token of a text is the end of its path graph"


def degrees(adjacency: Tensor) -> Tensor:
    """Return the degree of each node, [B, T, 1], from adjacency matrices [B, T, T]."""
    return adjacency.double().sum(dim=-2)[..., None]


def return_probabilities(adjacency: Tensor, walk_length: int) -> Tensor:
    """Return the probability that a random walk is back after 1 .. walk_length steps.

    [B, T, walk_length] from adjacency matrices [B, T, T]; 0 for nodes without edges.
    """
    out_degrees = degrees(adjacency).mT  # of the node that the walk leaves, [B, 1, T]
    walk = adjacency.double() / out_degrees.masked_fill(out_degrees == 0, 1)
    power, probabilities = walk, [walk.diagonal(dim1=-2, dim2=-1)]
    for _ in range(walk_length - 1):
        power = walk @ power
        probabilities.append(power.diagonal(dim1=-2, dim2=-1))
    return torch.stack(probabilities, dim=-1)


def path_graph(length: int, device: torch.device) -> Tensor:
    """Return the adjacency matrix [1, T, T] of a path of `length` nodes."""
    edges = torch.ones(length - 1, dtype=torch.float64, device=device)
    return (edges.diag(1) + edges.diag(-1))[None]


def distance_to_end(length: int, device: torch.device) -> Tensor:
    """Return the distance [T] of each node of a path to its nearer end."""
    node = torch.arange(length, device=device)
    return torch.minimum(node, length - 1 - node)


class RandomWalk(Encoding):
    """Return probabilities of a random walk, mapped to the model's width by a learned layer."""

    limitations: Mapping[str, str] = {"prefix": LAST_NODE}

    def __init__(self, geometry: Geometry, *, walk_length: int = 16) -> None:
        super().__init__(geometry)
        if walk_length < 1:
            raise ValueError(f"walk_length={walk_length} must be 1 or more")
        self.walk_length = walk_length
        self.project = nn.Linear(walk_length, geometry.width)

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Return the probabilities of a path's nodes, [1, T, walk_length].

        They are looked up in the shortest path whose middle node is out of reach of both ends.
        """
        short = path_graph(min(length, 2 * self.walk_length + 1), device)
        node = distance_to_end(length, device).clamp(max=self.walk_length)
        return return_probabilities(short, self.walk_length)[:, node]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        source = "return_probabilities(adjacency, walk_length)"
        require_coordinates(pos, "random_walk", self.walk_length, source)
        dtype = torch.promote_types(x.dtype, torch.float32)
        weight, bias = self.project.weight.to(dtype), self.project.bias.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            return x + (pos.to(dtype) @ weight.mT + bias).to(x.dtype)


class Degree(Encoding):
    """A learned embedding per degree, shared by all degrees past the table; rows ~ N(0, std^2)."""

    limitations: Mapping[str, str] = {"prefix": LAST_NODE}

    def __init__(self, geometry: Geometry, *, num_degrees: int = 512, std: float = 0.02) -> None:
        super().__init__(geometry)
        if num_degrees < 2 or std < 0:
            raise ValueError(f"num_degrees={num_degrees} must be 2 or more, std={std} 0 or more")
        self.rows = nn.Linear(num_degrees, geometry.width, bias=False)  # applied to one-hot degrees
        nn.init.normal_(self.rows.weight, std=std)

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Return the degrees of a path's nodes, [1, T, 1]: 2, and 1 at its ends."""
        node_degrees = torch.full((length,), 2.0, dtype=torch.float64, device=device)
        node_degrees[0] -= 1
        node_degrees[-1] -= 1
        return node_degrees[None, :, None]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        require_coordinates(pos, "degree", 1, "degrees(adjacency)")
        row = pos[..., 0].long().clamp(max=self.rows.in_features - 1)
        return x + self.rows.weight.mT[row].to(x.dtype)


def require_coordinates(pos: Tensor, name: str, size: int, source: str) -> None:
    """Raise ValueError unless `pos` are coordinates [B, T, size], computed by `source`."""
    if pos.ndim != 3 or pos.shape[-1] != size:
        raise ValueError(
            f"{name} takes coordinates [B, T, {size}] of nodes, computed by {source} of"
            f" posenc.encodings.graph, not a tensor of shape {list(pos.shape)}"
        )
