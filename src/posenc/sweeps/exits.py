"""How a job's process ends, and the signals that ask it to."""

import signal

FINISHED, FAILED, BUSY, FULL, LOST, INTERRUPTED = 0, 1, 3, 4, 5, 143
"""Exit codes of a job. Busy: another process has the run; full: the disk is, even for its status;
lost: a process is gone that it cannot do without; interrupted: it was asked to stop and did."""
ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
