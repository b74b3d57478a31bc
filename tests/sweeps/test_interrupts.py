import os
import signal

from posenc.sweeps.job_process import received_signals


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        with received_signals() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupts
            os.kill(os.getpid(), signal.SIGTERM)
            assert len(interrupts) == 1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is terminate
    finally:
        signal.signal(signal.SIGHUP, before)
