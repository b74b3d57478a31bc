"""The decoder-only Transformer: layers, construction from a configuration, loss, generation."""
