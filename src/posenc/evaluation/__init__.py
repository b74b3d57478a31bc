"""Evaluating one checkpoint at many lengths: every token scored once, float64 sums."""
