"""Summed losses of evaluation rows: by position in the window, and in blocks of the text.

`loss_by_position.npz` holds the sums at each position in a window. `loss_by_block.npz` holds the
sums over blocks of consecutive tokens: the text of a split is itself a sample, and resampling its
blocks (a block bootstrap) shows how much a loss depends on the choice of text.
"""

import io
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import ceil, floor, isclose, log2, prod, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc.config.errors import RunError, one_line
from posenc.runs.evaluation_rows import Row, budget_key, measurement_key, rows_with_most_tokens
from posenc.runs.files import open_regular, write_atomic
from posenc.runs.lock import lock

BLOCK_TOKENS = 4096
BY_POSITION = "by_position"
"""The protocol whose losses at each position are saved."""
BINS_PER_OCTAVE = 4
MAX_ARRAY_BYTES = 2**28
"""The maximum total size of a file's arrays; a small file can expand a thousandfold."""
ARRAY_DTYPES = {"sum": np.dtype(np.float64), "count": np.dtype(np.int64)}
NUMPY_COMPRESSION = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class BlockSums(NamedTuple):
    """The summed losses in nats and the numbers of scored targets in each block of a split's text.

    Both arrays have one entry for each block of BLOCK_TOKENS consecutive tokens. A target belongs
    to the block that contains its position in the text, whatever window it was scored in.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]


def block_arrays(row: Row, blocks: BlockSums) -> dict[str, np.ndarray]:
    """Return the arrays that store the blocks of an evaluation row."""
    name = _block_array_name(row)
    return {f"{name}.sum": blocks.sums, f"{name}.count": blocks.counts}


def row_blocks(row: Row, arrays: Mapping[str, np.ndarray]) -> BlockSums | None:
    """Return the blocks of an evaluation row, or None if no matching blocks are saved."""
    stored = sums_and_counts(row, arrays, _block_array_name(row))
    return BlockSums(*stored) if stored else None


def _block_array_name(row: Row) -> str:
    """Return `<data>.<split>.<protocol>.<length>.<stride>.<swap>`, with `-` for null.

    If the row's `at_tokens` is not null, the name ends in `.at_tokens=<n>`.
    """
    *parts, _ = measurement_key(row)
    return ".".join("-" if part is None else str(part) for part in parts) + at_tokens_suffix(row)


def position_array_name(row: Row) -> str:
    """Return the name of a row's arrays in `loss_by_position.npz`, without `.sum` or `.count`."""
    swap = "" if row["swap"] is None else f".{row['swap']}"
    return f"{row['data']}.{row['split']}.{row['length']}{swap}{at_tokens_suffix(row)}"


def at_tokens_suffix(row: Row) -> str:
    """Return the suffix of a row's array names: `.at_tokens=<n>`, or "" if that is null."""
    at_tokens = row.get("at_tokens")
    return "" if at_tokens is None else f".at_tokens={at_tokens}"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in an npz file, none if it is missing. Raises RunError if it is corrupt."""
    if not path.exists():
        return {}
    try:
        with os.fdopen(open_regular(path), "rb") as file, zipfile.ZipFile(file) as archive:
            arrays = _read_members(archive)
        _check_arrays(arrays)
    except Exception as error:  # corrupt bytes can make zipfile and numpy raise anything
        raise RunError(
            f"{path} is corrupt ({one_line(error)}); delete it and evaluate the run again"
        ) from None
    return arrays


def read_position_losses(path: Path, rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the arrays of `loss_by_position.npz`; `rows` are all rows of its run.

    Raises RunError if the file is corrupt, or if the arrays of a row do not match it.
    """
    by_position = [row for row in rows if row["protocol"] == BY_POSITION]
    arrays = _read_checked_arrays(path, by_position, position_array_name)
    for row in by_position:
        name = f"{position_array_name(row)}.sum"
        if name in arrays and len(arrays[name]) != row["length"]:
            raise RunError(
                f"{path} is corrupt ({name} has {len(arrays[name]):,} positions instead of"
                f" {row['length']:,}); delete it and evaluate the run again"
            )
    return arrays


def read_blocks(path: Path, rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the arrays of `loss_by_block.npz`, like `read_position_losses`."""
    return _read_checked_arrays(path, rows, _block_array_name)


def _read_checked_arrays(
    path: Path, rows: Sequence[Row], array_name: Callable[[Row], str]
) -> dict[str, np.ndarray]:
    """Return the arrays in an npz file after comparing them with the rows that they belong to.

    The arrays of a measurement are those of its row with the most scored tokens. Older versions
    overwrote a row when it was evaluated again with the same time budget, so the arrays may be
    those of an overwritten row with more tokens.
    """
    arrays = read_arrays(path)
    time_limited = {measurement_key(row) for row in rows if budget_key(row)[0] is not None}
    for row in rows_with_most_tokens(rows):
        name, is_complete = array_name(row), budget_key(row) == (None, None)
        is_limited = measurement_key(row) in time_limited
        if f"{name}.sum" not in arrays or (is_limited and not is_complete):
            continue
        if sums_and_counts(row, arrays, name) is None:
            raise RunError(
                f"{path} does not match evaluation.json ({name}): an evaluation was killed while it"
                f" was replacing the row, or one of the files is older, edited or from another run;"
                f" restore it, or repeat the latest evaluation of the run"
            )
    return arrays


def _read_members(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """Return the arrays in an open npz file, like numpy.load but twice as fast."""
    members = archive.infolist()
    if any(member.compress_type not in NUMPY_COMPRESSION for member in members):
        raise ValueError("its compression method is not supported")
    if (size := sum(member.file_size for member in members)) > MAX_ARRAY_BYTES:
        raise ValueError(f"its arrays have {size:,} bytes; the limit is {MAX_ARRAY_BYTES:,}")
    arrays = {}
    for member in members:
        with archive.open(member) as file:
            data = file.read(member.file_size)  # a member can exceed its declared size
        start = 10 + int.from_bytes(data[8:10], "little")
        shape, dtype = _parse_header(data[:start])
        array = np.frombuffer(data, dtype, prod(shape), offset=start)
        arrays[member.filename.removesuffix(".npy")] = array.reshape(shape)
    return arrays


@lru_cache(maxsize=256)
def _parse_header(header: bytes) -> tuple[tuple[int, ...], np.dtype]:
    """Return an array's shape and dtype, cached because many arrays have the same header."""
    file = io.BytesIO(header)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array is not in version 1.0 of the npy format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the arrays form pairs of finite sums and counts of equal length."""
    for name, array in arrays.items():
        stem, _, kind = name.rpartition(".")
        if array.ndim != 1 or not array.size or array.dtype != ARRAY_DTYPES.get(kind):
            raise ValueError(
                f"{name} is not a one-dimensional array of sums (float64) or counts (int64)"
            )
        other = arrays.get(f"{stem}.{'count' if kind == 'sum' else 'sum'}")
        if other is None or other.shape != array.shape:
            raise ValueError(f"{name} has no counterpart of the same length")
        if not np.isfinite(array).all() or (kind == "count" and array.min() < 0):
            raise ValueError(f"{name} has a negative count or a number that is not finite")


def merge_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Add arrays to an npz file under a lock, replacing existing arrays with the same names."""
    with lock(path.with_name(f".{path.name}.lock")):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **{**read_arrays(path), **arrays})
        write_atomic(path, buffer.getvalue())


def sums_and_counts(
    row: Row, arrays: Mapping[str, np.ndarray], name: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the arrays `<name>.sum` and `<name>.count` of an evaluation row.

    Returns None if there are none, or if they do not match the row: the row and its arrays are
    written one after the other, so a process can be killed between the two writes.
    """
    if f"{name}.sum" not in arrays:
        return None
    sums, counts = arrays[f"{name}.sum"], arrays[f"{name}.count"]
    same_sum = isclose(sums.sum(), row["loss"] * row["count"], rel_tol=1e-9)
    return (sums, counts) if same_sum and counts.sum() == row["count"] else None


def end_of_window_loss(row: Row, arrays: Mapping[str, np.ndarray]) -> float | None:
    """Return the mean loss over the last quarter of the positions in a row's windows.

    Returns None if the row has no matching losses by position, or none in that quarter.
    """
    stored = sums_and_counts(row, arrays, position_array_name(row))
    if stored is None:
        return None
    sums, counts = (array[3 * len(array) // 4 :] for array in stored)
    return float(sums.sum() / counts.sum()) if counts.any() else None


def bin_positions(
    sums: np.ndarray, counts: np.ndarray, train_length: int, min_tokens: int = 0
) -> list[tuple[float, float, int]]:
    """Return log-spaced bins of positions as (center, mean loss, tokens).

    Positions start at 1; a bin's center is the geometric mean of its first and last positions. One
    bin ends at the training length, so that no bin extends across it. Any other bin with fewer than
    `min_tokens` tokens, except the last, is merged with the next one. Bins without tokens are left
    out.
    """
    edges = _bin_edges(len(sums), train_length)
    bins, start = [], 0
    for end in edges[1:]:
        tokens = int(counts[start:end].sum())
        if 0 < tokens < min_tokens and end not in (train_length, len(sums)):
            continue
        if tokens:
            center = sqrt((start + 1) * end)
            bins.append((center, float(sums[start:end].sum()) / tokens, tokens))
        start = end
    return bins


@lru_cache(maxsize=256)
def _bin_edges(length: int, train_length: int) -> list[int]:
    """Return 0 and the ends of the bins of `length` positions."""
    first = floor(-BINS_PER_OCTAVE * log2(train_length))
    last = ceil(BINS_PER_OCTAVE * log2(length / train_length))
    ends = np.floor(train_length * 2 ** (np.arange(first, last) / BINS_PER_OCTAVE)).astype(int)
    return np.unique(np.clip([0, *ends, length], 0, length)).tolist()
