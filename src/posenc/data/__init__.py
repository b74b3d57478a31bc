"""The data that models are trained on: corpora, tokenizers, token arrays and synthetic tasks."""
