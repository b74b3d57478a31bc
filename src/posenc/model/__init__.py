"""The decoder-only Transformer, its loss, and functions that build it from a configuration."""
