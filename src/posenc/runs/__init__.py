"""A run's record on disk: the truth that every other view is made from."""
