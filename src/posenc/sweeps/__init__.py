"""Sweeps: which runs there are, and seeing each of them to its end exactly once."""
