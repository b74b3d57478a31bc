"""Composing, checking and naming what is to be run. Imports neither torch nor Lightning."""
