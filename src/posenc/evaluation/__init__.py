"""Evaluation of a checkpoint at many lengths: each target is scored once, sums are in float64."""
