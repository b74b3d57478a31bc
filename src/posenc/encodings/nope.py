"""No positional encoding; order is from the causal mask (Haviv et al. 2022, arXiv:2203.16634)."""

from posenc.encodings.base import Encoding


class NoPE(Encoding):
    """The base class unchanged: no hook has an effect."""
