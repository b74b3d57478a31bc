"""The signal handlers that a launcher installs."""

import os
import signal

from posenc.sweeps.job_process import recorded_signals


def test_an_ignored_signal_stays_ignored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sigterm_handler = signal.getsignal(signal.SIGTERM)
    try:
        with recorded_signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals
            os.kill(os.getpid(), signal.SIGTERM)
            assert len(signals) == 1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is sigterm_handler
    finally:
        signal.signal(signal.SIGHUP, previous)
