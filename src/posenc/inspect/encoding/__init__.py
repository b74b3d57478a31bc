"""Properties of encodings, measured without training."""
