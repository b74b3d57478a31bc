"""Synthetic tasks: sequences of any length, generated from a seed, with answers that are scored.

Each answer follows from the tokens before it. In each module's example, `|` marks the start of an
answer. The answer is the rest of the sequence, except in flip_flop and mqar: their sequences have
several answers of one token each.
"""
