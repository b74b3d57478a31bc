"""Measurements that a budget or the user ends early."""

from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch

from posenc.api import run_evaluation
from posenc.cli import main
from posenc.data.build_data import build_data
from posenc.data.dataset import TokenArray
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.protocols import nonoverlapping, sliding
from posenc.evaluation.requests import missing_row_keys, requested_row_keys
from posenc.evaluation.windows import Budget, TokenWindows
from posenc.runs.evaluation_rows import merge_rows, read_rows, rows_with_most_tokens
from posenc.runs.loss_arrays import read_arrays
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.tracker import NullTracker

TOKENS = TokenArray(np.arange(1000), words=1, bytes=1, documents=1, eos_id=0)


def test_without_a_budget_windows_are_scored_in_order() -> None:
    windows = TokenWindows(TOKENS, nonoverlapping(1000, 7))
    for budget in (Budget(), Budget(tokens=1000), Budget(tokens=10**9)):
        assert budget.order(windows).tolist() == list(range(143))


@pytest.mark.parametrize("tokens", [1, 50, 300, 999])
def test_a_budget_of_tokens_selects_whole_windows_spread_evenly(tokens: int) -> None:
    windows = TokenWindows(TOKENS, nonoverlapping(1000, 10))
    order = Budget(tokens=tokens).order(windows)
    assert len(order) == len(set(order.tolist())) == max(1, tokens // 10)
    assert (np.diff(order) > 0).all()
    gaps = np.diff([-1, *order, 100])
    assert gaps.max() <= 3 * 100 / len(order)


def test_windows_are_spread_evenly_whenever_a_budget_of_seconds_runs_out() -> None:
    windows = TokenWindows(TOKENS, sliding(1000, 8, 1))
    order = Budget(seconds=1.0).order(windows)
    assert sorted(order.tolist()) == list(range(len(windows.lengths)))
    for scored in (5, 17, 100, 500):
        gaps = np.diff([-1, *np.sort(order[:scored]), len(order)])
        assert gaps.max() <= 3 * len(order) / scored
    assert Budget(seconds=1.0).is_spent(1.0) and not Budget(seconds=1.0).is_spent(0.9)
    assert not Budget().is_spent(1e9)


def test_the_hash_depends_on_the_targets_not_on_the_windows() -> None:
    hashes = set()
    for spans in (nonoverlapping(1000, 7), nonoverlapping(1000, 1000), sliding(1000, 8, 3)):
        windows = TokenWindows(TOKENS, spans)
        indices = np.random.default_rng(0).permutation(len(windows.lengths))
        hashes.add(windows.digest(indices))
    assert len(hashes) == 1
    windows = TokenWindows(TOKENS, nonoverlapping(1000, 10))
    parts = [windows.digest(np.array(indices)) for indices in ([0, 1], [1, 0], [0, 2], [1, 2], [0])]
    assert parts[0] == parts[1] and len({*hashes, *parts}) == 5
    other = TokenArray(np.arange(1000)[::-1], words=1, bytes=1, documents=1, eos_id=0)
    assert TokenWindows(other, nonoverlapping(1000, 10)).digest(np.arange(100)) not in hashes


def test_a_row_with_a_budget_reports_its_coverage(
    short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [f"run={short_run.path}", "evaluation=sliding", "evaluation.stride=2"]
    lengths = "evaluation.lengths=[24,48]"
    assert main(["evaluate", *overrides, lengths, "evaluation.budget_tokens=100"]) == 0
    assert "25.1%" in capsys.readouterr().out
    rows = [row for row in short_run.rows() if row["stride"] == 2]
    assert [row["count"] for row in rows] == [100, 100]
    assert all(row["full_count"] == 398 and row["words"] is None for row in rows)
    assert main(["evaluate", *overrides, lengths, "evaluation.budget_seconds=1e-9"]) == 0
    rows = [row for row in short_run.rows() if row["stride"] == 2]
    # The budget is checked after each batch, and the first one scores all tokens.
    assert sorted(row["count"] for row in rows) == [100, 100, 398, 398]


def test_a_smaller_budget_replaces_neither_rows_nor_arrays(
    short_run: RunDirectory, tmp_path: Path
) -> None:
    run = RunDirectory(
        Path(copytree(short_run.path, tmp_path / "outputs" / "copy" / short_run.name))
    )
    run.evaluation_file.unlink()

    def rows() -> list[dict[str, Any]]:
        return [row for row in run.rows() if (row["length"], row["stride"]) == (24, None)]

    assert main(["evaluate", f"run={run.path}"]) == 0
    before, arrays = rows(), read_arrays(run.positions_file)
    blocks = read_arrays(run.blocks_file)
    overrides = [f"run={run.path}", "evaluation.budget_tokens=100"]
    assert main(["evaluate", *overrides]) == 0
    assert main(["evaluate", *overrides]) == 0
    after = rows()
    assert all(row in after for row in before) and len(after) == 2 * len(before) > 0
    assert rows_with_most_tokens(after) == before
    for old, file in ((arrays, run.positions_file), (blocks, run.blocks_file)):
        new = read_arrays(file)
        assert new.keys() == old.keys() and all((new[key] == old[key]).all() for key in old)


def test_an_evaluation_is_logged_with_the_config_of_the_run(
    short_run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []

    class Recorder(NullTracker):
        def start(self, run: RunDirectory, config: Any, job_type: Any = "train") -> None:
            logged.append((config, job_type))

    monkeypatch.setattr(run_evaluation, "build_tracker", lambda config: Recorder())
    assert main(["evaluate", f"run={short_run.path}", "evaluation.lengths=[36]"]) == 0
    assert logged == [(short_run.config(), "evaluate")]


def test_a_budget_of_seconds_replaces_only_a_row_of_the_same_tokens(tmp_path: Path) -> None:
    def row(count: int) -> dict[str, Any]:
        key = ("data", "split", "protocol", "stride", "swap", "at_tokens", "budget_tokens")
        scored = {"count": count, "full_count": 9, "tokens_hash": f"hash of {count}"}
        return {**dict.fromkeys(key), **scored, "length": 24, "budget_seconds": 1e-3}

    path = tmp_path / "evaluation.json"
    for count in (7, 2, 2):
        merge_rows(path, [row(count)])
    assert sorted(row["count"] for row in read_rows(path)) == [2, 7]
    assert rows_with_most_tokens(read_rows(path)) == [row(7)]


def test_an_interrupted_evaluation_resumes_with_the_missing_rows(short_run: RunDirectory) -> None:
    config = short_run.config()
    config.evaluation.update(
        {
            "lengths": [24, 36],
            "protocols": ["nonoverlapping", "sliding", "last_k", "fixed_target"],
            "stride": 9,
            "k": 9,
            "targets": 9,
            "batch_tokens": 100,
        }
    )
    data = build_data(config, print)
    requested = requested_row_keys(config, data.fingerprint)
    short_run.evaluation_file.unlink()

    def evaluate_missing(calls: int) -> list[float]:
        """Evaluate until progress has been reported `calls` times; return the reported values."""
        progress: list[float] = []

        def on_progress(done: float, rate: float) -> bool:
            progress.append(done)
            return len(progress) < calls

        missing = missing_row_keys(requested, short_run.rows())
        evaluate(short_run, config, data, missing, torch.device("cpu"), on_progress)
        return progress

    progress = evaluate_missing(15)
    assert len(progress) == 15 and progress == sorted(progress) and 0 < progress[-1] < 1
    rows = short_run.rows()
    assert 0 < len(rows) < len(requested)
    assert evaluate_missing(10**9)[-1] == pytest.approx(1.0)
    assert missing_row_keys(requested, short_run.rows()) == []
    assert all(row in short_run.rows() for row in rows)
