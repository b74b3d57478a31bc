"""A W&B workspace and report of an experiment, and its sweeps for W&B's agents."""
