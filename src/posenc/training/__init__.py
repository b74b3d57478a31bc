"""Training at one length: Lightning runs the loop, and `recorder` writes the files of the run."""
