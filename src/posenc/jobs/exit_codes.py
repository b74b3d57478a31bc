"""Exit codes of a job's process, and the signals that ask it to stop."""

import signal

FINISHED = 0
FAILED = 1
BUSY = 3
"""Another process has the run."""
DISK_FULL = 4
"""The disk is full, even for the run's status."""
LOST = 5
"""Another process of the same run is gone."""
INTERRUPTED = 143
"""Stopped on request, after a checkpoint."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
