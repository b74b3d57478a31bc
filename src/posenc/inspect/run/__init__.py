"""What training made of an encoding, measured on the weights of one run."""
