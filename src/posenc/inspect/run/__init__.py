"""Analysis of a finished run: attention, scores, frequencies, parameters and embeddings."""
