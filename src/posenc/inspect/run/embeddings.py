"""Two checks of article 000 (Su 2021, kexue.fm/archives/8231), made there on BERT's embeddings.

Its Taylor expansion takes positions as small beside tokens: the norm of the one beside that of the
other. Its decay with distance takes a matrix as nearly diagonal, for which the article looks at the
covariance of each kind of embedding over its vectors: diagonal elements beside the others.
"""

import math
from typing import Any

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.model.transformer import Decoder


@torch.no_grad()
def token_vectors(model: Decoder, vocabulary: int) -> Tensor:
    """What each token of the vocabulary brings to the stream [V, D], in float64."""
    tokens = torch.arange(vocabulary, device=model.device)
    return model.embedding_scale * model.embedding(tokens[None])[0].double().cpu()


@torch.no_grad()
def position_vectors(encoding: Encoding, length: int, device: torch.device) -> Tensor | None:
    """What each of `length` positions adds to the stream [T, D] in float64; None for nothing."""
    if not encoding.overrides("embed"):
        return None
    nothing = torch.zeros(1, length, encoding.geometry.width, device=device)
    added = encoding.embed(nothing, encoding.positions(length, device))[0].double().cpu()
    return added if added.any() else None


def described(name: str, vectors: Tensor, *, repeated: bool = False) -> dict[str, Any]:
    """Norms and covariance of `vectors` [n, D] as a row.

    `diagonal_over_rest` is the mean of the covariance's diagonal over the mean size of its other
    elements; of n independent normal vectors with independent channels it would be about
    sqrt(pi n / 2), `independent`; None where vectors are `repeated`. `diagonal_share` is the
    diagonal's part of the sum of squares.
    """
    norms = vectors.norm(dim=-1)
    covariance = vectors.T.cov()
    diagonal = covariance.diagonal()
    rest = covariance - diagonal.diag()
    width = len(diagonal)
    mean_rest = float(rest.abs().sum()) / (width * (width - 1))
    return {
        "vectors": name,
        "count": len(vectors),
        "mean_norm": float(norms.mean()),
        "std_norm": float(norms.std(correction=0)),
        "diagonal_over_rest": float(diagonal.mean()) / mean_rest if mean_rest else None,
        "independent": None if repeated else math.sqrt(math.pi * len(vectors) / 2),
        "diagonal_share": float(diagonal.square().sum() / covariance.square().sum()),
    }


def embeddings(
    model: Decoder, vocabulary: int, tokens: Tensor, length: int
) -> list[dict[str, Any]]:
    """A row for the vocabulary, one for the tokens of a text [n] as often as they come in it, and
    one for the positions within the training length and past it, where there are any."""
    vectors, trained = token_vectors(model, vocabulary), model.encoding.geometry.train_length
    text = described("text", vectors[tokens.flatten()], repeated=True)
    rows = [described("vocabulary", vectors), text]
    added = position_vectors(model.encoding, length, model.device)
    if added is not None:
        rows.append(described("positions within L", added[:trained]))
        if length > trained + 1:
            rows.append(described("positions past L", added[trained:]))
    return rows
