"""What an encoding is, measured without training, and what a trained run has made of it."""
