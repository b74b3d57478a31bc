"""The fitted S and the fraction of the gain that early tokens explain, from known losses."""

import csv
import io
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from posenc.report.result_rows import explained_fraction, fitted_slope
from posenc.report.write_report import write_report

L, LENGTHS = 64, (64, 96, 128, 256, 1024)
END = 3.0  # the loss of tokens with enough context


def loss_at(position: int, late: float = 0.0) -> float:
    """A loss that falls up to position 40, and changes by `late` beyond the training length."""
    return END + 2.0 * max(0, 1 - position / 40) ** 2 + late * (position >= L)


def mean_loss(length: int, late: float = 0.0) -> float:
    return math.fsum(loss_at(p, late) for p in range(length)) / length


def test_s_is_the_slope_of_a_line_in_the_inverse_length() -> None:
    losses = {float(length): 3 + 5 / length + 0.01 * math.sin(length) for length in LENGTHS}
    slope, _ = np.polyfit(1 / np.array(list(losses)), list(losses.values()), 1)
    assert fitted_slope(losses) == pytest.approx(slope, rel=1e-9)


def test_if_only_early_tokens_matter_they_explain_the_whole_gain() -> None:
    losses = {float(length): mean_loss(length) for length in LENGTHS}
    excess = math.fsum(loss_at(p) - END for p in range(L))
    assert fitted_slope(losses) == pytest.approx(excess, rel=1e-9)
    assert explained_fraction(losses, L, END) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("late", [-0.05, 0.02])
def test_context_beyond_the_training_length_changes_the_fraction(late: float) -> None:
    """The gain has two parts: fewer early tokens, and `late` for the tokens from L on."""
    losses = {float(length): mean_loss(length, late) for length in LENGTHS}
    early = mean_loss(L) - mean_loss(1024)
    fraction = explained_fraction(losses, L, END)
    assert fraction == pytest.approx(early / (early - late * (1024 - L) / 1024), rel=1e-9)
    assert fraction is not None and (fraction > 1) == (late > 0)


def test_without_a_gain_or_an_end_loss_there_is_no_fraction() -> None:
    assert explained_fraction({64.0: 3.0, 128.0: 3.1}, 64, 2.9) is None
    assert explained_fraction({64.0: 3.0, 128.0: 2.9}, 64, None) is None


def write_runs(
    folder: Path,
    fabricate: SimpleNamespace,
    seeds: tuple[int, ...],
    *,
    late: float | tuple[float, ...],
    save_position_losses: bool,
) -> Path:
    """Write a run for each seed; `late` is that of `loss_at`, for all seeds or for each."""
    changes_by_seed = late if isinstance(late, tuple) else (late,) * len(seeds)
    for seed, change in zip(seeds, changes_by_seed, strict=True):
        rows, positions = [], {}
        for length in LENGTHS:
            count = np.full(length, 81_920 // length)
            sums = np.array([loss_at(p, change) + 0.1 * seed for p in range(length)]) * count
            changes = {"count": int(count.sum()), "sum": sums.sum()}
            rows.append(fabricate.row(length, sums.sum() / count.sum(), **changes))
            name = f"{rows[-1]['data']}.validation.{length}"
            positions |= {f"{name}.sum": sums, f"{name}.count": count}
        config = fabricate.config("alibi", L, seed)
        fabricate.run(folder, config, rows, positions=positions if save_position_losses else None)
    return folder


def early_token_columns(folder: Path, console: Console) -> dict[str, str]:
    text = (write_report(folder, console).parent / "extrapolation.csv").read_text()
    (row,) = csv.DictReader(io.StringIO(text))
    return {name: row[name] for name in ("S", "S_low", "S_high", "early_token_fraction")}


def test_the_table_has_s_and_the_early_token_fraction(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    folder = write_runs(
        tmp_path / "early", fabricate, (1, 2, 3), late=0.0, save_position_losses=True
    )
    values = early_token_columns(folder, console)
    excess = math.fsum(loss_at(p) - END for p in range(L))
    assert float(values["S"]) == pytest.approx(excess, rel=1e-4)
    assert float(values["S_low"]) <= float(values["S"]) <= float(values["S_high"])
    assert float(values["early_token_fraction"]) == pytest.approx(1, rel=1e-4)
    assert "100% ±0%" in (folder / "report/extrapolation.md").read_text()


def test_a_run_without_losses_by_position_has_s_only(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    folder = write_runs(tmp_path / "early", fabricate, (1,), late=0.0, save_position_losses=False)
    values = early_token_columns(folder, console)
    assert float(values["S"]) > 0
    assert values["S_low"] == values["S_high"] == values["early_token_fraction"] == "-"


def test_a_loss_that_rises_with_length_has_no_fraction(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    folder = write_runs(tmp_path / "early", fabricate, (1, 2), late=3.0, save_position_losses=True)
    values = early_token_columns(folder, console)
    assert float(values["S"]) < 0 and values["early_token_fraction"] == "-"


def test_a_gain_whose_interval_includes_zero_has_no_fraction(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    gain = mean_loss(L) - mean_loss(1024)
    late = tuple(factor * gain * 1024 / (1024 - L) for factor in (0.2, 0.95, 0.99))
    folder = write_runs(
        tmp_path / "early", fabricate, (1, 2, 3), late=late, save_position_losses=True
    )
    values = early_token_columns(folder, console)
    assert float(values["S"]) > 0 and values["early_token_fraction"] == "-"
