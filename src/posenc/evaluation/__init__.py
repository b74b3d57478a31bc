"""Measuring one checkpoint at many lengths, every token once, in exact sums."""
