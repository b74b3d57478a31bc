"""Composition, validation and identity of configurations; imports neither torch nor Lightning."""
