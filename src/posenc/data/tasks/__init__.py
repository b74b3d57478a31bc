"""Synthetic tasks: sequences with one right answer, drawn at any length from a seed."""
