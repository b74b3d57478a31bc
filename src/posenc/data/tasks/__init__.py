"""Synthetic tasks: sequences with one correct answer, generated from a seed at any length.

In the example of each module, `|` precedes the scored tokens, which are the answer.
"""
