"""Training a model at one length: Lightning runs the loop, the record says what happened."""
