"""Training at one length: Lightning runs the loop, and `recorder` writes logs and checkpoints."""
