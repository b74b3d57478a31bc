"""Positional encodings: one class per file, each defined by what it overrides of `Encoding`."""
