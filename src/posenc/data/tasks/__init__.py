"""Synthetic tasks: sequences with one correct answer, generated at any length from a seed."""
