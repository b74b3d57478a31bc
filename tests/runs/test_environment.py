import sys

import numpy as np
import pytest

from posenc.runs.environment import job_environment, peak_megabytes, reset_peak_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset the peak")
def test_after_a_reset_the_peak_no_longer_includes_memory_that_was_freed() -> None:
    reset_peak_memory()
    before = peak_megabytes()
    np.ones(200_000_000, dtype=np.uint8)
    assert peak_megabytes() - before == pytest.approx(200, abs=20)
    reset_peak_memory()
    assert peak_megabytes() - before < 100


def test_jobs_do_not_search_the_current_folder_for_an_empty_entry_of_pythonpath(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", ":/somewhere:")
    assert job_environment(1)["PYTHONPATH"] == "/somewhere"


def test_jobs_ignore_variables_that_lower_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    monkeypatch.setenv("MY_VARIABLE", "kept")
    environment = job_environment(1)
    assert "ONEDNN_DEFAULT_FPMATH_MODE" not in environment
    assert environment["MY_VARIABLE"] == "kept"
