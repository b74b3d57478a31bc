"""Experiment tracking: W&B runs mirror run directories, which remain the source of truth."""
