"""The decoder-only Transformer, its loss, and how a configuration becomes a model."""
