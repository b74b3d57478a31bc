"""What an encoding gives to positions: codes, lines of biases, scores. All in float64.

T tokens, N distances, H heads, C channels of a code; the layer is the first one.
"""

import torch
from torch import Tensor

from posenc.attention.reference import positions_at, score_bias
from posenc.encodings.base import Encoding
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.inspect.encoding.subject import Subject

INSIDE = ("rotate", "bias", "content_bias", "value_bias")


def acting(encoding: Encoding) -> list[str]:
    """The hooks of the encoding that do anything."""
    found = ["embed"] if encoding.overrides("embed") else []
    return found + [hook for hook in INSIDE if encoding.at_layer(0).overrides(hook)]


def drawn(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@torch.no_grad()
def code(encoding: Encoding, pos: Tensor) -> Tensor | None:
    """The code of each position [T, C]: what is added to a token, or a query of ones, turned.

    None for an encoding that does neither.
    """
    tokens = pos.shape[-1] if pos.ndim == 1 else pos.shape[-2]
    host = encoding.geometry
    nothing = torch.zeros(1, tokens, host.width, dtype=torch.float64)
    parts = [encoding.embed(nothing, pos)[0]] if encoding.overrides("embed") else []
    if encoding.at_layer(0).overrides("rotate"):
        same = nothing.new_ones(1, host.heads, tokens, host.head_width)
        turned, _ = encoding.at_layer(0).rotate(nothing, same, same, pos)
        parts.append(turned[0, 0])
    return torch.cat(parts, dim=-1) if parts else None


@torch.no_grad()
def line(encoding: Encoding, pos: Tensor, query: int) -> Tensor | None:
    """What is added to scores at each distance [H, query + 1], where all tokens say the same.

    `query` is the token that looks back. None for an encoding that adds nothing.
    """
    host, tokens = encoding.geometry, query + 1
    x = drawn(2, 1, 1, host.width).expand(1, tokens, -1)
    q = x.unflatten(-1, (host.heads, host.head_width)).transpose(1, 2)
    rows, keys = slice(query, tokens), slice(0, tokens)
    added = score_bias(encoding.at_layer(0), x, q, q, positions_at(pos, keys), rows, keys)
    return None if added is None else added[0, :, 0].flip(-1)


@torch.no_grad()
def at_distances(encoding: Encoding, distance: Tensor, query: float) -> Tensor | None:
    """The bias [H, N] at any distances [N], of a query at that position; None without one."""
    head = torch.arange(encoding.geometry.heads)[:, None]
    found = encoding.at_layer(0).bias(
        head[..., None], distance.double()[None], torch.full((1, 1), float(query)).double()
    )
    return None if found is None else found.expand(len(head), 1, -1)[:, 0]


@torch.no_grad()
def operands(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Queries and keys [B, H, T, d'] with position in them, and what is added for the last query.

    Contents are x [B, T, D] and q, k [B, H, T, d]; what is added to the stream reaches q and k
    through projections that are the identity (article 000's H = I).
    """
    stream = encoding.embed(x, pos)
    if encoding.overrides("embed"):
        added = (stream - x).unflatten(-1, (q.shape[1], -1)).transpose(1, 2)
        q, k = q + added, k + added
    here, tokens = encoding.at_layer(0), q.shape[2]
    q, k = here.rotate(stream, q, k, pos)
    last, keys = slice(tokens - 1, tokens), slice(0, tokens)
    return q, k, score_bias(here, stream, q, k, pos, last, keys)


def scores(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Tensor:
    """Scores of the last token as query [B, H, T], before the softmax."""
    turned, keys, added = operands(encoding, x, q, k, pos)
    found = (turned[:, :, -1:] @ keys.mT)[:, :, 0] * encoding.geometry.head_width**-0.5
    return found if added is None else found + added[:, :, 0]


def waves_of(subject: Subject) -> SinusoidalFrequencies | None:
    """The frequencies of an encoding that has a spectrum."""
    return next(
        (m for m in subject.encoding.modules() if isinstance(m, SinusoidalFrequencies)), None
    )
