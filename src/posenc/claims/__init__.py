"""Claims of the literature as data, judged on what was measured: holds, fails or undecided."""
