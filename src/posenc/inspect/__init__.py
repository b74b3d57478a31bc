"""Analysis of an encoding without training, and of the attention of a trained model."""
