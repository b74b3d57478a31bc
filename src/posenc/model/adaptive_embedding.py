"""Adaptive input embeddings (Baevski & Auli 2019, 1809.10853): rare words have narrow vectors."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class AdaptiveEmbedding(nn.Module):
    """A vocabulary sorted by falling frequency, cut into bands; all end in `width` channels.

    `cutoffs` are the first tokens of the second band and of those after it; vectors of band i
    have width / factor^i channels, and a projection of their own to `width`.
    """

    def __init__(self, vocabulary: int, width: int, cutoffs: list[int], factor: int) -> None:
        super().__init__()
        edges = [0, *cutoffs, vocabulary]
        if not cutoffs or any(start >= stop for start, stop in pairwise(edges)):
            raise ValueError(
                f"cutoffs={cutoffs} must rise, from above 0 to below the vocabulary of {vocabulary}"
            )
        if factor < 1 or factor ** len(cutoffs) > width:
            raise ValueError(
                f"factor={factor} must be 1 or more, and leave a channel of width={width} to the"
                f" last of {len(edges) - 1} bands"
            )
        self.width, self.cutoffs = width, cutoffs
        widths = [width // factor**i for i in range(len(edges) - 1)]
        sizes = [stop - start for start, stop in pairwise(edges)]
        self.bands = nn.ModuleList(
            nn.Embedding(size, narrow) for size, narrow in zip(sizes, widths, strict=True)
        )
        self.projections = nn.ModuleList(nn.Linear(narrow, width, bias=False) for narrow in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        """The vectors [B, T, D] of tokens [B, T]."""
        band = self.band_of(tokens)
        x = self.vectors(0).new_empty(*tokens.shape, self.width)
        for i, start in enumerate([0, *self.cutoffs]):
            inside = band == i
            x[inside] = self.projections[i](self.bands[i](tokens[inside] - start)).to(x.dtype)
        return x

    def band_of(self, tokens: Tensor) -> Tensor:
        """The number of the band that each token is in."""
        return sum((tokens >= cutoff for cutoff in self.cutoffs), torch.zeros_like(tokens))

    def vectors(self, band: int) -> Tensor:
        """The vectors of a band, [its words, its width]."""
        return self.bands[band].get_parameter("weight")

    def narrowed(self, x: Tensor, band: int) -> Tensor:
        """The stream [.., D] brought to the width of a band, by its projection transposed."""
        return linear(x, self.projections[band].get_parameter("weight").T)
