"""Synthetic tasks: sequences with one correct answer, generated from a seed at any length."""
