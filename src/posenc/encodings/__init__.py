"""Positional encodings: one class per file, each overriding some hooks of `Encoding`."""
