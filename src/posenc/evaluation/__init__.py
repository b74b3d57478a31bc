"""Evaluation of checkpoints at many lengths; no target is scored twice, sums are in float64."""
