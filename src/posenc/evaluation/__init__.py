"""Evaluation of checkpoints at many lengths, with exact sums: in float64, each target once."""
