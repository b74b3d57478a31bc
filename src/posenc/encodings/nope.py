"""No positional encoding; the causal mask alone shows order (Haviv et al. 2022, 2203.16634)."""

from posenc.encodings.base import Encoding


class NoPE(Encoding):
    """The base class unchanged: every hook is the identity."""
