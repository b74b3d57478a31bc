"""No positional encoding: the causal mask alone tells order (Haviv et al. 2022, 2203.16634)."""

from posenc.encodings.base import Encoding


class NoPE(Encoding):
    """Every hook of the base is the identity; there is nothing to add."""
