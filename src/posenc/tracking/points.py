"""The points of a run's curves on a dashboard, under W&B's names."""

from collections.abc import Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from omegaconf import DictConfig

from posenc.runs.bins import binned
from posenc.runs.evaluation_rows import positions_name

MAIN_SPLIT = "validation"
LENGTH = "extrapolation/length"
POSITION = "loss_by_position/position"
AXES = (LENGTH, POSITION)
SAID = ("perplexity", "loss", "accuracy", "exact")
Row = dict[str, Any]
Point = dict[str, Any]


def training_point(row: Row) -> Point:
    """A row of `metrics.jsonl`."""
    point = {
        "step": row["step"],
        "tokens": row["tokens"],
        "train/loss": row["loss"],
        "train/learning_rate": row["learning_rate"],
    }
    if "validation_loss" in row:
        point["validation/loss"] = row["validation_loss"]
    return point


def evaluation_points(
    rows: list[Row], arrays: Mapping[str, np.ndarray], config: DictConfig
) -> list[Point]:
    """The extrapolation curves, each by length, then the losses by position."""
    by_length = sorted(rows, key=lambda row: (row["length"], _parts(row, config)))
    curves = [curve_point(row, config) for row in by_length]
    longest = {_parts(row, config): row for row in by_position(rows, arrays)}
    positions = [position_points(row, arrays, config) for row in longest.values()]
    return curves + list(chain.from_iterable(positions))


def curve_point(row: Row, config: DictConfig) -> Point:
    """A row of `evaluation.json` as a point of its curve, which is named by how it differs.

    The run's own validation text gives `extrapolation/<protocol>/...`; another corpus, another
    split or a swap put their names before the protocol, which a stride follows.
    """
    stride = "" if row["stride"] is None else f"-{row['stride']}"
    curve = "/".join(["extrapolation", *_parts(row, config), f"{row['protocol']}{stride}"])
    return {LENGTH: row["length"], **{f"{curve}/{n}": row[n] for n in SAID if n in row}}


def position_points(row: Row, arrays: Mapping[str, np.ndarray], config: DictConfig) -> list[Point]:
    """`loss_by_position/.../loss` against the position from 1, in log-spaced bins."""
    curve = "/".join(["loss_by_position", *_parts(row, config), "loss"])
    return [{POSITION: at, curve: loss} for at, loss, _ in position_bins(row, arrays, config)]


def position_bins(
    row: Row, arrays: Mapping[str, np.ndarray], config: DictConfig
) -> list[tuple[float, float, int]]:
    """(position from 1, mean loss, tokens) of a row that was measured by position."""
    name = positions_name(row)
    return binned(arrays[f"{name}.sum"], arrays[f"{name}.count"], config.train_length)


def by_position(rows: list[Row], arrays: Mapping[str, np.ndarray]) -> list[Row]:
    """The rows whose losses are kept by position, by length."""
    kept = [
        r for r in rows if r["protocol"] == "by_position" and f"{positions_name(r)}.sum" in arrays
    ]
    return sorted(kept, key=itemgetter("length"))


def _parts(row: Row, config: DictConfig) -> tuple[str, ...]:
    """What sets a measurement apart from one of the run's own validation text."""
    other_data = row["data_name"] if row["data"] != config.frozen.fingerprint else None
    other_split = row["split"] if row["split"] != MAIN_SPLIT else None
    swap = row["swap"] and row["swap"].replace(" ", "-")
    return tuple(part for part in (other_data, other_split, swap) if part)
