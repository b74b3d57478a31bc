"""The encoding's parameters before and after training, and statistics of embeddings."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.model.transformer import Decoder
from posenc.runs.row_types import Row

MAX_VALUES = 1024
"""A larger parameter with several dimensions is summarized by its norms along the last one."""


def parameter_rows(initial: Encoding, trained: Encoding, length: int) -> list[Row]:
    """Return a row for each value (or norm) of each parameter, before and after training.

    Trainable frequencies are stored as offsets, so additional rows have the frequencies themselves,
    in radians per token for windows of `length`.
    """
    before = dict(_parameters(initial, length))
    return [
        {
            "parameter": name,
            "index": ",".join(str(i.item()) for i in index),
            "quantity": quantity,
            "initial": float(before[name, quantity][tuple(index)]),
            "trained": float(values[tuple(index)]),
        }
        for (name, quantity), values in _parameters(trained, length)
        for index in torch.ones_like(values).nonzero()
    ]


def _parameters(encoding: Encoding, length: int) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Yield ((name, quantity), values) for each parameter."""
    for name, parameter in encoding.named_parameters():
        values = parameter.detach().double().cpu()
        if values.numel() > MAX_VALUES and values.ndim > 1:
            yield (name, "norm"), values.norm(dim=-1)
        else:
            yield (name, "value"), values
    for name, module in encoding.named_modules():
        if isinstance(module, SinusoidalFrequencies) and module.offset is not None:
            frequencies, _ = module.frequencies(1, length, torch.device("cpu"))
            yield (f"{name}.frequencies", "radians per token"), frequencies[0].detach().cpu()


@torch.no_grad()
def token_embeddings(model: Decoder, vocab_size: int) -> Tensor:
    """Return the embeddings [V, D] of all tokens in float64, multiplied by the embedding scale."""
    tokens = torch.arange(vocab_size, device=model.device)
    return model.embedding_scale * model.embedding(tokens[None])[0].double().cpu()


@torch.no_grad()
def position_embeddings(encoding: Encoding, length: int, device: torch.device) -> Tensor | None:
    """Return the float64 vectors [T, D] added to the hidden states, or None if there are none."""
    if not encoding.overrides("embed"):
        return None
    zeros = torch.zeros(1, length, encoding.geometry.width, device=device)
    added = encoding.embed(zeros, encoding.positions(length, device))[0].double().cpu()
    return added if added.any() else None


def embedding_statistics(name: str, vectors: Tensor, *, has_duplicates: bool = False) -> Row:
    """Return a row with statistics of the norms and the covariance of `vectors` [n, D].

    Su (2021, kexue.fm/archives/8231) assumes that position embeddings are small relative to token
    embeddings, and that covariances are nearly diagonal. `diagonal_ratio` is the mean of the
    covariance's diagonal divided by the mean absolute value of its other elements. `independent` is
    the expected ratio for n independent normal vectors with independent channels, about
    sqrt(pi n / 2), or None if `has_duplicates` (some vectors occur more than once).
    `diagonal_fraction` is the fraction of the sum of squares on the diagonal.
    """
    norms, covariance = vectors.norm(dim=-1), vectors.T.cov()
    diagonal = covariance.diagonal()
    width = len(diagonal)
    off_diagonal = float((covariance - diagonal.diag()).abs().sum()) / (width * (width - 1))
    return {
        "vectors": name,
        "count": len(vectors),
        "mean_norm": float(norms.mean()),
        "std_norm": float(norms.std(correction=0)),
        "diagonal_ratio": float(diagonal.mean()) / off_diagonal if off_diagonal else None,
        "independent": None if has_duplicates else math.sqrt(math.pi * len(vectors) / 2),
        "diagonal_fraction": float(diagonal.square().sum() / covariance.square().sum()),
    }


def embedding_rows(model: Decoder, vocab_size: int, tokens: Tensor, length: int) -> list[Row]:
    """Return statistics of the embeddings of the vocabulary, of the text and of positions.

    There are rows for positions (within and beyond the training length) only if the encoding has
    position embeddings.
    """
    embeddings = token_embeddings(model, vocab_size)
    train_length = model.encoding.geometry.train_length
    text = embedding_statistics("text", embeddings[tokens.flatten()], has_duplicates=True)
    rows = [embedding_statistics("vocabulary", embeddings), text]
    added = position_embeddings(model.encoding, length, model.device)
    if added is not None:
        rows.append(embedding_statistics("positions within L", added[:train_length]))
        if length > train_length + 1:
            rows.append(embedding_statistics("positions beyond L", added[train_length:]))
    return rows
