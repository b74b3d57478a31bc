"""Corpora, tokenizers, prepared token arrays and synthetic tasks: what a model is trained on."""
