"""A decoder-only Transformer in which position enters through an encoding's hooks alone."""
