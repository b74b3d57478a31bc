"""Encodings of a graph's nodes, computed from its edges and added to the hidden states.

    random_walk   x_i + C p_i + c,   p_i = (P_ii, (P^2)_ii, .., (P^walk_length)_ii),   P = A D^-1
    degree        x_i + z[deg(i)]

A [B, T, T] is the adjacency matrix and D the diagonal matrix of degrees; the coordinates p
[B, T, walk_length] and deg [B, T, 1] are float64. Dwivedi et al. (2022, arXiv:2110.07875) process
C p + c in parallel with x. Here it is added to x, as Graphormer does with degree embeddings (Ying
et al. 2021, arXiv:2106.05234, eq. 5; in an undirected graph, its tables of in- and out-degrees
coincide).

A sequence is treated as a path graph with its tokens as nodes. The end nodes of a path differ from
its inner nodes, so the encoding of the last tokens depends on the length of the sequence.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry

LAST_NODE_REASON = "the last token of a sequence is the end of its path graph"


def degrees(adjacency: Tensor) -> Tensor:
    """Return the degree of each node, [B, T, 1], from adjacency matrices [B, T, T]."""
    return adjacency.double().sum(dim=-2)[..., None]


def return_probabilities(adjacency: Tensor, walk_length: int) -> Tensor:
    """Return the probabilities of being back at the start after 1 .. walk_length random steps.

    The shape is [B, T, walk_length] for adjacency matrices [B, T, T]; nodes without edges get 0.
    """
    out_degrees = degrees(adjacency).mT  # degree of the node that the walk leaves, [B, 1, T]
    walk = adjacency.double() / out_degrees.masked_fill(out_degrees == 0, 1)
    power, probabilities = walk, [walk.diagonal(dim1=-2, dim2=-1)]
    for _ in range(walk_length - 1):
        power = walk @ power
        probabilities.append(power.diagonal(dim1=-2, dim2=-1))
    return torch.stack(probabilities, dim=-1)


class RandomWalk(Encoding):
    """Adds the return probabilities of random walks, projected to the model's width."""

    limitations: Mapping[str, str] = {"prefix_consistent": LAST_NODE_REASON}

    def __init__(self, geometry: Geometry, *, walk_length: int = 16) -> None:
        super().__init__(geometry)
        if walk_length < 1:
            raise ValueError(f"walk_length={walk_length} must be at least 1")
        self.walk_length = walk_length
        self.project = nn.Linear(walk_length, geometry.width)

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Return `return_probabilities` [1, T, walk_length] for the nodes of a path.

        In a path of more than 2 walk_length edges, they depend only on the distance to the nearer
        end, up to `walk_length`. They are therefore computed on a path of at most that length
        and looked up by distance.
        """
        num_edges = min(length - 1, 2 * self.walk_length)
        edges = torch.ones(num_edges, dtype=torch.float64, device=device)
        short_path = (edges.diag(1) + edges.diag(-1))[None]
        node = torch.arange(length, device=device)
        distance_to_end = torch.minimum(node, length - 1 - node).clamp(max=self.walk_length)
        return return_probabilities(short_path, self.walk_length)[:, distance_to_end]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        source = "return_probabilities(adjacency, walk_length)"
        require_coordinates(pos, "random_walk", self.walk_length, source)
        dtype = torch.promote_types(x.dtype, torch.float32)
        weight, bias = self.project.weight.to(dtype), self.project.bias.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            return x + (pos.to(dtype) @ weight.mT + bias).to(x.dtype)


class Degree(Encoding):
    """Adds a learned embedding per degree, initialized from N(0, std^2).

    All degrees of num_degrees - 1 or more share the last row of the table.
    """

    limitations: Mapping[str, str] = {"prefix_consistent": LAST_NODE_REASON}

    def __init__(self, geometry: Geometry, *, num_degrees: int = 512, std: float = 0.02) -> None:
        super().__init__(geometry)
        if num_degrees < 2 or std < 0:
            raise ValueError(
                f"num_degrees={num_degrees} must be at least 2, and std={std} must be non-negative"
            )
        # Column i of the weight is the embedding of degree i.
        self.rows = nn.Linear(num_degrees, geometry.width, bias=False)
        nn.init.normal_(self.rows.weight, std=std)

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Return the degrees [1, T, 1] of the nodes of a path: 1 at its ends and 2 in between."""
        node_degrees = torch.full((length,), 2.0, dtype=torch.float64, device=device)
        node_degrees[0] -= 1
        node_degrees[-1] -= 1
        return node_degrees[None, :, None]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        require_coordinates(pos, "degree", 1, "degrees(adjacency)")
        row = pos[..., 0].long().clamp(max=self.rows.in_features - 1)
        return x + self.rows.weight.mT[row].to(x.dtype)


def require_coordinates(pos: Tensor, name: str, size: int, source: str) -> None:
    """Raise ValueError unless `pos` has shape [B, T, size]; the message names its `source`."""
    if pos.ndim != 3 or pos.shape[-1] != size:
        raise ValueError(
            f"{name} takes coordinates [B, T, {size}] of nodes, computed by {source} in"
            f" posenc.encodings.graph, not a tensor of shape {list(pos.shape)}"
        )
