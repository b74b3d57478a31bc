"""posenc: what a positional encoding does to a Transformer language model, at L and beyond."""

__version__ = "0.2.0"
