"""Evaluating one checkpoint at many lengths: every token scored once, exact sums."""
