"""Analysis of a trained model: attention, scores, frequencies, parameters and embeddings."""
