"""Mirrors of a run for dashboards; whatever befalls them, the run and its files are complete."""
