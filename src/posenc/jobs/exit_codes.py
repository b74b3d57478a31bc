"""Exit codes of a job's process, and the signals that stop a launcher and its jobs."""

import signal

FINISHED = 0
FAILED = 1
BUSY = 3
"""Another process is already executing this run."""
DISK_FULL = 4
"""The disk was full and even the run's status could not be written."""
LOST = 5
"""A rank of the run died; the remaining ranks and the parent process exit with this code."""
READ_ONLY = 6
"""The file system was read-only, so the run's status could not be written."""
INTERRUPTED = 143
"""The job stopped before it was finished, usually on request, and can be resumed."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
