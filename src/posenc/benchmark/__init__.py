"""What encodings cost: time, memory and utilisation of a forward pass and of a training step."""
