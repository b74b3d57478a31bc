"""An encoding's position vectors, biases and scores at given positions, in float64.

Shapes: T tokens, N distances, H heads, C channels of a position vector. All values are for layer 0.
"""

import torch
from torch import Tensor

from posenc.attention.reference import dot_products, positions_at, score_bias
from posenc.encodings.base import Encoding
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.inspect.encoding.inspected_encoding import InspectedEncoding


def random_normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def random_content(inspected: InspectedEncoding, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return x [1, T, D] and q, k [1, H, T, d] of unit variance."""
    geometry = inspected.encoding.geometry
    shape = (1, geometry.heads, tokens, geometry.head_dim)
    x = random_normal(3, 1, tokens, geometry.width)
    return x, random_normal(4, *shape), random_normal(5, *shape)


@torch.no_grad()
def position_vectors(encoding: Encoding, pos: Tensor) -> Tensor | None:
    """Return the position vectors [T, C], or None if the encoding has none.

    A position vector is what the encoding adds to a token embedding, or an all-ones query vector of
    the first head after rotation, with all-ones hidden states. If the encoding both adds and
    rotates, it is the concatenation of the two.
    """
    geometry, layer, added = encoding.geometry, encoding.at_layer(0), added_vectors(encoding, pos)
    parts = [] if added is None else [added]
    if layer.overrides("rotate"):
        tokens = _num_tokens(pos)
        ones = torch.ones(1, geometry.heads, tokens, geometry.head_dim, dtype=torch.float64)
        hidden = torch.ones(1, tokens, geometry.width, dtype=torch.float64)
        rotated, _ = layer.rotate(hidden, ones, ones, pos)
        parts.append(rotated[0, 0])
    return torch.cat(parts, dim=-1) if parts else None


@torch.no_grad()
def added_vectors(encoding: Encoding, pos: Tensor) -> Tensor | None:
    """Return the vectors [T, D] that are added to token embeddings, or None if all are zero."""
    zeros = torch.zeros(1, _num_tokens(pos), encoding.geometry.width, dtype=torch.float64)
    added = encoding.embed(zeros, pos)[0]
    return added if added.any() else None


def _num_tokens(pos: Tensor) -> int:
    return pos.shape[-1] if pos.ndim == 1 else pos.shape[-2]


@torch.no_grad()
def bias_by_distance(
    inspected: InspectedEncoding, length: int, num_keys: int | None = None
) -> Tensor | None:
    """Return the bias [H, N] of one query in a sequence of `length` tokens, or None.

    The query is the last of the first `num_keys` tokens, by default the last of the sequence. All
    tokens have identical content. None means that the encoding has no bias.
    """
    tokens, geometry = num_keys or length, inspected.encoding.geometry
    x = random_normal(2, 1, 1, geometry.width).expand(1, tokens, -1)
    q = x.unflatten(-1, (geometry.heads, geometry.head_dim)).transpose(1, 2)
    rows, keys = slice(tokens - 1, tokens), slice(0, tokens)
    pos = positions_at(inspected.positions(length), keys)
    inspected.encoding.embed(x, pos)  # draws the random positions of this forward pass
    bias = score_bias(inspected.encoding.at_layer(0), x, q, q, pos, rows, keys)
    return None if bias is None else bias[0, :, 0].flip(-1)


@torch.no_grad()
def attention_inputs(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return q and k [B, H, T, d'] after embedding and rotation, and the bias of the last query.

    x [B, T, D] and q, k [B, H, T, d] do not contain any position information. Absolute position
    embeddings are added to q and k directly, as if the projections were the identity.
    """
    hidden = encoding.embed(x, pos)
    if encoding.overrides("embed"):
        embedding = (hidden - x).unflatten(-1, (q.shape[1], -1)).transpose(1, 2)
        q, k = q + embedding, k + embedding
    layer, tokens = encoding.at_layer(0), q.shape[2]
    q, k = layer.rotate(hidden, q, k, pos)
    last, keys = slice(tokens - 1, tokens), slice(0, tokens)
    return q, k, score_bias(layer, hidden, q, k, pos, last, keys)


def last_query_scores(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Tensor:
    """Return the scores [B, H, T] of the last token's query, before the softmax."""
    return last_query_scores_from_inputs(encoding, pos, *attention_inputs(encoding, x, q, k, pos))


def last_query_scores_from_inputs(
    encoding: Encoding, pos: Tensor, q: Tensor, k: Tensor, bias: Tensor | None
) -> Tensor:
    """Return the scores [B, H, T] of the last query, given the results of `attention_inputs`."""
    last, keys = slice(q.shape[2] - 1, q.shape[2]), slice(0, q.shape[2])
    products = dot_products(encoding.at_layer(0), q[:, :, last], k, pos, last, keys)
    scores = products[:, :, 0] * encoding.geometry.head_dim**-0.5
    return scores if bias is None else scores + bias[:, :, 0]


def find_sinusoidal_frequencies(inspected: InspectedEncoding) -> SinusoidalFrequencies | None:
    """Return the encoding's first module with frequencies, or None if it has none."""
    modules = inspected.encoding.modules()
    return next((m for m in modules if isinstance(m, SinusoidalFrequencies)), None)
