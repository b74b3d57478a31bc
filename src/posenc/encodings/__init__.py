"""Positional encodings: one small class a file, each exactly what it overrides of `Encoding`."""
