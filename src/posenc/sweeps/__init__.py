"""Sweeps: runs that are planned together and launched on this machine or a cluster."""
