"""Structural encodings of a graph's nodes: what they are is computed from the edges, by the data.

    random_walk   x_i + C p_i + c,   p_i = (P_ii, (P^2)_ii, .., (P^steps)_ii),   P = A D^-1
    degree        x_i + z[deg(i)]

A [B, T, T] are adjacencies, D their degrees; the coordinates are p [B, T, steps] and deg
[B, T, 1], in float64. Dwivedi et al. 2022 (2110.07875) start a stream of its own, beside x, with
C p + c; here it is added, as Graphormer adds the degree (Ying et al. 2021, 2106.05234, eq. 5,
whose two tables are one where edges have no direction).

Tokens of a text are the nodes of a path. Ends of a path differ from its inside, so that a text's
last token tells those near it how long the text is.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry

END = "the last token of a text is the end of its path"


def degrees(adjacency: Tensor) -> Tensor:
    """The degree of each node [B, T, 1] from adjacencies [B, T, T]."""
    return adjacency.double().sum(dim=-2)[..., None]


def return_probabilities(adjacency: Tensor, steps: int) -> Tensor:
    """How likely a random walk is back after 1 .. steps steps, [B, T, steps]; 0 without edges."""
    edges = degrees(adjacency).mT  # of the node that is left, [B, 1, T]
    walk = adjacency.double() / edges.masked_fill(edges == 0, 1)
    power, found = walk, [walk.diagonal(dim1=-2, dim2=-1)]
    for _ in range(steps - 1):
        power = walk @ power
        found.append(power.diagonal(dim1=-2, dim2=-1))
    return torch.stack(found, dim=-1)


def path(length: int, device: torch.device) -> Tensor:
    """The adjacency [1, T, T] of a path of `length` nodes."""
    edges = torch.ones(length - 1, dtype=torch.float64, device=device)
    return (edges.diag(1) + edges.diag(-1))[None]


def from_end(length: int, device: torch.device) -> Tensor:
    """How far each token of a text [T] is from its nearer end."""
    token = torch.arange(length, device=device)
    return torch.minimum(token, length - 1 - token)


class RandomWalk(Encoding):
    """Return probabilities of `steps` steps, through a trained linear map."""

    limitations: Mapping[str, str] = {"prefix": END}

    def __init__(self, geometry: Geometry, *, steps: int = 16) -> None:
        super().__init__(geometry)
        if steps < 1:
            raise ValueError(f"steps={steps} must be 1 or more")
        self.steps = steps
        self.project = nn.Linear(steps, geometry.width)

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Those of a path [1, T, steps], read off one so short that its middle sees no end."""
        seen = path(min(length, 2 * self.steps + 1), device)
        near = from_end(length, device).clamp(max=self.steps)
        return return_probabilities(seen, self.steps)[:, near]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        coordinates(pos, "random_walk", self.steps, "return_probabilities(adjacency, steps)")
        dtype = torch.promote_types(x.dtype, torch.float32)
        weight, bias = self.project.weight.to(dtype), self.project.bias.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            return x + (pos.to(dtype) @ weight.mT + bias).to(x.dtype)


class Degree(Encoding):
    """A trained row of a table for each degree, the last for all beyond; rows ~ N(0, std^2)."""

    limitations: Mapping[str, str] = {"prefix": END}

    def __init__(self, geometry: Geometry, *, rows: int = 512, std: float = 0.02) -> None:
        super().__init__(geometry)
        if rows < 2 or std < 0:
            raise ValueError(f"rows={rows} must be 2 or more, std={std} 0 or above")
        self.rows = nn.Linear(rows, geometry.width, bias=False)  # of a one-hot degree
        nn.init.normal_(self.rows.weight, std=std)

    def positions(self, length: int, device: torch.device) -> Tensor:
        """Those of a path [1, T, 1]: 2, and 1 at its ends."""
        edges = torch.full((length,), 2.0, dtype=torch.float64, device=device)
        edges[0] -= 1
        edges[-1] -= 1
        return edges[None, :, None]

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        coordinates(pos, "degree", 1, "degrees(adjacency)")
        row = pos[..., 0].long().clamp(max=self.rows.in_features - 1)
        return x + self.rows.weight.mT[row].to(x.dtype)


def coordinates(pos: Tensor, name: str, wanted: int, source: str) -> None:
    """ValueError unless `pos` are coordinates [B, T, wanted]."""
    if pos.ndim != 3 or pos.shape[-1] != wanted:
        raise ValueError(
            f"{name} takes coordinates [B, T, {wanted}] of nodes, as {source} of"
            f" posenc.encodings.structure gives them, not a tensor of {list(pos.shape)}"
        )
