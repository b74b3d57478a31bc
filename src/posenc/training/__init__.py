"""Training a model at one length: Lightning runs the loop, `recorder` writes the run's files."""
