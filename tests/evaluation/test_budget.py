"""A measurement that a budget, or a person, cuts short."""

import numpy as np
import pytest

from posenc.cli import main
from posenc.data.build import build_data
from posenc.data.tokenized import TokenArray
from posenc.evaluation.budget import Budget
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.protocols.nonoverlapping import blocks
from posenc.evaluation.protocols.sliding import slides
from posenc.evaluation.rows import missing, requested
from posenc.evaluation.windows import StreamWindows
from posenc.runs.run_directory import RunDirectory

STREAM = TokenArray(np.arange(1000), words=1, bytes=1, documents=1, end_of_text=0)


def test_without_a_budget_windows_are_read_in_order() -> None:
    windows = StreamWindows(STREAM, blocks(1000, 7))
    for budget in (Budget(), Budget(tokens=1000), Budget(tokens=10**9)):
        assert Budget.order(budget, windows).tolist() == list(range(143))


@pytest.mark.parametrize("tokens", [1, 50, 300, 999])
def test_a_budget_of_tokens_is_kept_with_whole_windows_spread_evenly(tokens: int) -> None:
    windows = StreamWindows(STREAM, blocks(1000, 10))
    chosen = Budget(tokens=tokens).order(windows)
    assert len(chosen) == len(set(chosen.tolist())) == max(1, tokens // 10)
    assert (np.diff(chosen) > 0).all()
    gaps = np.diff([-1, *chosen, 100])
    assert gaps.max() <= 3 * 100 / len(chosen)


def test_whenever_seconds_run_out_the_windows_so_far_are_spread_evenly() -> None:
    windows = StreamWindows(STREAM, slides(1000, 8, 1))
    order = Budget(seconds=1.0).order(windows)
    assert sorted(order.tolist()) == list(range(len(windows.lengths)))
    for so_far in (5, 17, 100, 500):
        gaps = np.diff([-1, *np.sort(order[:so_far]), len(order)])
        assert gaps.max() <= 3 * len(order) / so_far
    assert Budget(seconds=1.0).spent(1.0) and not Budget(seconds=1.0).spent(0.9)
    assert not Budget().spent(1e9)


def test_the_hash_is_of_the_targets_however_they_are_cut() -> None:
    whole = {
        windows.digest(np.random.default_rng(0).permutation(len(windows.lengths)))
        for spans in (blocks(1000, 7), blocks(1000, 1000), slides(1000, 8, 3))
        if (windows := StreamWindows(STREAM, spans))
    }
    assert len(whole) == 1
    tens = StreamWindows(STREAM, blocks(1000, 10))
    parts = [tens.digest(np.array(of)) for of in ([0, 1], [1, 0], [0, 2], [1, 2], [0])]
    assert parts[0] == parts[1] and len({*whole, *parts}) == 5
    other = TokenArray(np.arange(1000)[::-1], words=1, bytes=1, documents=1, end_of_text=0)
    assert StreamWindows(other, blocks(1000, 10)).digest(np.arange(100)) not in whole


def test_a_row_that_a_budget_cuts_short_says_so(
    short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"run={short_run.path}", "evaluation=sliding", "evaluation.stride=2"]
    lengths = "evaluation.lengths=[24,48]"
    assert main(["evaluate", *words, lengths, "evaluation.budget_tokens=100"]) == 0
    assert "25.1 %" in capsys.readouterr().out
    rows = [row for row in short_run.rows() if row["stride"] == 2]
    assert [row["count"] for row in rows] == [100, 100]
    assert all(row["full_count"] == 398 and row["words"] is None for row in rows)
    assert main(["evaluate", *words, lengths, "evaluation.budget_seconds=1e-9"]) == 0
    rows = [row for row in short_run.rows() if row["stride"] == 2]
    assert [row["coverage"] < 1 for row in rows] == [False, False]  # one batch is all of it
    small = ["evaluation.budget_seconds=1e-9", "evaluation.batch_tokens=1"]
    assert main(["evaluate", *words, lengths, *small]) == 0
    rows = [row for row in short_run.rows() if row["stride"] == 2]
    assert [row["count"] for row in rows] == [2, 2]


def test_stopped_in_the_middle_it_goes_on_with_what_is_missing(short_run: RunDirectory) -> None:
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
    wanted = requested(config, data.fingerprint)
    short_run.evaluation_file.unlink()
    calls: list[float] = []

    def until(limit: int) -> list[float]:
        def go_on(done: float, rate: float) -> bool:
            calls.append(done)
            return len(calls) < limit

        evaluate(short_run, config, data, missing(wanted, short_run.rows()), go_on)
        return calls

    shares = until(15)
    assert len(shares) == 15 and shares == sorted(shares) and 0 < shares[-1] < 1
    there = short_run.rows()
    assert 0 < len(there) < len(wanted)
    calls.clear()
    assert until(10**9)[-1] == pytest.approx(1.0)
    assert missing(wanted, short_run.rows()) == []
    assert all(row in short_run.rows() for row in there)
