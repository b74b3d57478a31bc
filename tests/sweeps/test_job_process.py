"""Signals that a launcher receives."""

import os
import signal

from posenc.sweeps.job_process import recorded_signals


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        with recorded_signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals
            os.kill(os.getpid(), signal.SIGTERM)
            assert len(signals) == 1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is terminate
    finally:
        signal.signal(signal.SIGHUP, before)
