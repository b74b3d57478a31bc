"""Synthetic tasks: sequences of any length, generated from a seed, with answers that are scored.

Each answer follows from the tokens before it. In the example of each module, `|` precedes an
answer: the rest of the sequence or, in flip_flop and mqar, which have several answers, one token.
"""
