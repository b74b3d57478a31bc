"""Experiment trackers: a W&B run mirrors a run directory, which stays the source of truth."""
