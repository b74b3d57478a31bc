"""Evaluates checkpoints at many lengths; each measurement scores a target at most once."""
