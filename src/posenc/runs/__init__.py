"""Runs on disk: their directories, statuses, metrics and evaluation rows; the source of truth."""
