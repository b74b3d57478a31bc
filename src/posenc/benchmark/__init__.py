"""Measures and estimates the cost of encodings: time, memory, FLOPs and utilization."""
