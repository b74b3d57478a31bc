"""Sweeps of runs: planned all or nothing, then launched on this machine or a cluster."""
