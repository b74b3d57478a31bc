"""Rows of W&B's history: training metrics, extrapolation curves and loss by position."""

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from omegaconf import DictConfig

from posenc.config.paths import NO_SWAP
from posenc.runs.evaluation_rows import rows_with_most_tokens
from posenc.runs.loss_arrays import BY_POSITION, bin_positions, position_array_name, sums_and_counts
from posenc.runs.row_types import Row
from posenc.runs.run_directory import STOPPED_EARLY

MAIN_SPLIT = "validation"
LENGTH_AXIS = "extrapolation/length"
POSITION_AXIS = "loss_by_position/position"
FACTOR = re.compile(r"factor=[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
EVALUATION_AXES = (LENGTH_AXIS, POSITION_AXIS)
STEP_METRICS = {
    "train/*": "tokens",
    "validation/*": "tokens",
    "extrapolation/*": LENGTH_AXIS,
    "loss_by_position/*": POSITION_AXIS,
}
"""Metric pattern -> the metric that W&B plots it against (`step_metric`)."""

TRAINING_METRICS = {
    "loss": "train/loss",
    "learning_rate": "train/learning_rate",
    "gradient_norm": "train/gradient_norm",
    "validation_loss": "validation/loss",
}
"""Key of `metrics.jsonl` -> W&B's metric name, if that is different."""
MEASUREMENT_KEYS = ("data", "split", "protocol", "stride")
SWAP_COLUMNS = ("swap", "factor", "length", "perplexity", *MEASUREMENT_KEYS)
EVALUATION_METRICS = ("perplexity", "loss", "accuracy", "exact")


def training_row(row: Row) -> Row:
    """Return a row of `metrics.jsonl` with W&B's metric names; callbacks' metrics keep theirs."""
    return {TRAINING_METRICS.get(key, key): row[key] for key in row if key != STOPPED_EARLY}


def evaluation_history(
    rows: list[Row], arrays: Mapping[str, np.ndarray], config: DictConfig
) -> list[Row]:
    """Return the extrapolation curves, then loss by position at the longest length.

    If a measurement has rows with several budgets, only the one with the most tokens is logged.
    """
    by_length = sorted(
        rows_with_most_tokens(rows), key=lambda row: (row["length"], _qualifiers(row, config))
    )
    history = [extrapolation_row(row, config) for row in by_length]
    curves = loss_by_position(rows, arrays, config.train_length)
    longest_curves = {_position_curve(row, config): bins for row, bins in curves}
    for curve, bins in longest_curves.items():
        history += [{POSITION_AXIS: position, f"{curve}/loss": loss} for position, loss, _ in bins]
    return history


def extrapolation_row(row: Row, config: DictConfig) -> Row:
    """Return a row of `evaluation.json` as a point of a curve.

    The curve is `extrapolation/[corpus/][split/][swap/][at-tokens-<n>/]<protocol>[-<stride>]`,
    without the parts that have their default values, such as the validation split. Two examples are
    `extrapolation/test/yarn/sliding-64/perplexity` and
    `extrapolation/at-tokens-500000/nonoverlapping/perplexity`.
    """
    curve = _extrapolation_curve(row, config)
    metrics = {f"{curve}/{name}": row[name] for name in EVALUATION_METRICS if name in row}
    return {LENGTH_AXIS: row["length"], **metrics}


def swap_rows(rows: Sequence[Row]) -> list[list[Any]]:
    """Return the rows of the table of swaps (SWAP_COLUMNS); [] if no swap was evaluated.

    All of them are for the final weights. `factor` is None for the swap's default and for `none`,
    which is the unchanged encoding; other parameters are part of the swap's name.
    """
    final = [row for row in rows_with_most_tokens(rows) if row.get("at_tokens") is None]
    swapped = {tuple(row[key] for key in MEASUREMENT_KEYS) for row in final if row["swap"]}
    table = []
    for row in final:
        measurement = tuple(row[key] for key in MEASUREMENT_KEYS)
        if measurement in swapped:
            words = (row["swap"] or NO_SWAP).split()
            factors = [word for word in words if FACTOR.fullmatch(word)]
            name = " ".join(word for word in words if word not in factors)
            factor = float(factors[0].removeprefix("factor=")) if factors else None
            measured = row["data_name"], *measurement[1:]
            table.append([name, factor, row["length"], row.get("perplexity"), *measured])
    return table


def swap_curves(rows: list[Row], config: DictConfig) -> dict[str, str]:
    """Map each curve with a swap to the same curve without it.

    Both are keys without the metric, such as `extrapolation/yarn/sliding-64`.
    """
    curves = {}
    for row in rows:
        if row["swap"] is not None:
            without_swap = {**row, "swap": None}
            for curve in (_extrapolation_curve, _position_curve):
                curves[curve(row, config)] = curve(without_swap, config)
    return curves


def loss_by_position(
    rows: list[Row], arrays: Mapping[str, np.ndarray], train_length: int
) -> list[tuple[Row, list[tuple[float, float, int]]]]:
    """Return the rows with losses by position, sorted by length, each with its log-spaced bins.

    A bin is (position, mean loss, tokens); positions start at 1. `arrays` come from the row
    with the most scored tokens of each measurement.
    """
    curves = []
    for row in sorted(rows_with_most_tokens(rows), key=itemgetter("length")):
        stored = sums_and_counts(row, arrays, position_array_name(row))
        if row["protocol"] == BY_POSITION and stored:
            curves.append((row, bin_positions(*stored, train_length)))
    return curves


def _extrapolation_curve(row: Row, config: DictConfig) -> str:
    stride = "" if row["stride"] is None else f"-{row['stride']}"
    protocol = f"{row['protocol']}{stride}"
    return "/".join(["extrapolation", *_qualifiers(row, config), protocol])


def _position_curve(row: Row, config: DictConfig) -> str:
    return "/".join(["loss_by_position", *_qualifiers(row, config)])


def _qualifiers(row: Row, config: DictConfig) -> tuple[str, ...]:
    """Return the row's corpus, split, swap and training tokens, omitting default values.

    The defaults are the run's own corpus, the validation split, no swap and the final weights.
    """
    other_corpus = row["data_name"] if row["data"] != config.planned.fingerprint else None
    other_split = row["split"] if row["split"] != MAIN_SPLIT else None
    swap = row["swap"] and row["swap"].replace(" ", "-")
    at_tokens = row.get("at_tokens") and f"at-tokens-{row['at_tokens']}"
    return tuple(part for part in (other_corpus, other_split, swap, at_tokens) if part)
