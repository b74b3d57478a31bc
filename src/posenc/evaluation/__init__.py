"""Evaluation of checkpoints at many lengths, scoring each target once and summing in float64."""
