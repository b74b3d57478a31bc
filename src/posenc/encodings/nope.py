"""No positional encoding; the causal mask alone conveys order (Haviv et al. 2022).

arXiv:2203.16634
"""

from posenc.encodings.base import Encoding


class NoPE(Encoding):
    """The base class unchanged: no hook has an effect."""
