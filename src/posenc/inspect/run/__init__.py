"""Analysis of a trained run: attention, scores, frequencies, parameters and embeddings."""
