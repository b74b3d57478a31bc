"""Losses are also summed in blocks of 4,096 consecutive tokens of the text."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc.cli import main
from posenc.data.dataset import TokenArray
from posenc.evaluation.protocols import fixed_target, last_k, nonoverlapping, sliding
from posenc.evaluation.scoring import Measurement, measure
from posenc.evaluation.windows import Budget, TokenWindows
from posenc.runs.environment import job_process, rank, world_size
from posenc.runs.loss_arrays import read_arrays, row_blocks
from posenc.runs.run_directory import RunDirectory

TOKENS = 10_000  # two whole blocks and a shorter one
TEXT = TokenArray(np.arange(TOKENS), words=1, bytes=1, documents=1, eos_id=0)
ARGUMENTS: list[tuple[Callable[..., NDArray[np.int64]], dict[str, int]]] = [
    (nonoverlapping, {}),
    (sliding, {"stride": 250}),
    (last_k, {"k": 70}),
    (fixed_target, {"targets": 33, "longest_length": 900}),
]


class PositionModel(torch.nn.Module):
    """A model whose loss is a function of the target token, which is its position in the text."""

    device = torch.device("cpu")

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return (targets % 7 + targets / TOKENS).float()

    def hidden_states(self, inputs: Tensor, scored: Tensor) -> Tensor:
        return inputs[scored]

    @property
    def head(self) -> "PositionModel":
        return self


def measured(windows: TokenWindows, budget: Budget) -> Measurement:
    model: Any = PositionModel()
    options: Any = {"precision": "float32", "on_batch": lambda tokens, seconds: True}
    result = measure(model, windows, batch_tokens=3000, budget=budget, **options)
    assert result is not None
    return result


def scored_positions(spans: NDArray[np.int64], indices: NDArray[np.int64]) -> Iterator[int]:
    for _, first_scored, stop in spans[indices].tolist():
        yield from range(first_scored, stop)


@pytest.mark.parametrize(("protocol", "arguments"), ARGUMENTS)
@pytest.mark.parametrize("budget", [Budget(), Budget(tokens=2000)])
def test_a_target_belongs_to_the_block_of_its_position_in_the_text(
    protocol: Callable[..., NDArray[np.int64]], arguments: dict[str, int], budget: Budget
) -> None:
    spans = protocol(TOKENS, 700, **arguments)
    result = measured(TokenWindows(TEXT, spans), budget)
    sums, counts = [0.0, 0.0, 0.0], Counter[int]()
    for position in scored_positions(spans, result.indices):
        sums[position // 4096] += float(np.float32(position % 7 + np.float32(position / TOKENS)))
        counts[position // 4096] += 1
    assert result.blocks is not None and result.blocks.sums.dtype == np.float64
    assert result.blocks.counts.tolist() == [counts[block] for block in range(3)]
    assert result.blocks.sums.tolist() == pytest.approx(sums, rel=1e-12)
    assert result.blocks.sums.sum() == pytest.approx(result.sums.sum(), rel=1e-12)


def test_variables_of_a_process_group_that_posenc_did_not_start_have_no_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only jobs may read them: as one of two ranks, a command would score every second window."""
    windows = TokenWindows(TEXT, nonoverlapping(TOKENS, 700))
    expected = measured(windows, Budget())
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    result = measured(windows, Budget())
    assert (result.sums.tolist(), rank()) == (expected.sums.tolist(), 0)
    with job_process():
        assert (rank(), world_size()) == (1, 2)


def complete_rows(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the rows that cover the run's whole text; other tests may have added more rows."""
    data = run.config().planned.fingerprint
    return [r for r in run.rows() if r["data"] == data and r["count"] == r["full_count"]]


def test_every_row_on_text_has_block_sums(short_run: RunDirectory) -> None:
    lengths = ["evaluation.lengths=[24,30]", "evaluation.swaps=[none,'window size=9']"]
    overrides = [
        f"run={short_run.path}",
        "evaluation.protocols=[nonoverlapping,by_position,sliding]",
    ]
    assert main(["evaluate", *overrides, "evaluation.stride=5", *lengths]) == 0
    arrays = read_arrays(short_run.blocks_file)
    rows = complete_rows(short_run)
    assert len({(row["protocol"], row["swap"]) for row in rows}) >= 6
    for row in rows:
        blocks = row_blocks(row, arrays)
        assert blocks is not None and len(blocks.sums) == 1  # 398 tokens are one block
        assert blocks.counts.sum() == row["count"]
        assert blocks.sums.sum() == pytest.approx(row["sum"], rel=1e-12)


def test_blocks_of_another_measurement_are_not_used_for_a_row(short_run: RunDirectory) -> None:
    """They remain if a process is killed between writing the blocks and writing the row."""
    row, arrays = complete_rows(short_run)[0], read_arrays(short_run.blocks_file)
    assert row_blocks(row, arrays) is not None
    assert row_blocks({**row, "loss": row["loss"] * 1.001}, arrays) is None
    assert row_blocks({**row, "count": row["count"] - 1}, arrays) is None
    assert row_blocks({**row, "stride": 3}, arrays) is None


def test_rows_without_a_file_of_blocks_have_no_blocks(short_run: RunDirectory) -> None:
    assert {row_blocks(row, {}) for row in short_run.rows()} == {None}
