"""Positional encodings: subclasses of `Encoding` that override some of its hooks."""
