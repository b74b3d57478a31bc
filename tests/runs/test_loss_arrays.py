"""npz files that are corrupt, belong to another run, or were not written by posenc."""

import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posenc.config.errors import RunError
from posenc.runs import loss_arrays
from posenc.runs.loss_arrays import merge_arrays, read_arrays, read_blocks, read_position_losses

SUMS, COUNTS = np.ones(3), np.ones(3, np.int64)


def test_arrays_are_read_as_they_were_saved(tmp_path: Path) -> None:
    merge_arrays(tmp_path / "a.npz", {"x.sum": SUMS, "x.count": COUNTS})
    merge_arrays(tmp_path / "a.npz", {"y.sum": 2 * SUMS, "y.count": COUNTS})
    arrays = read_arrays(tmp_path / "a.npz")
    assert arrays.keys() == {"x.sum", "x.count", "y.sum", "y.count"}
    assert arrays["y.sum"].tolist() == [2.0, 2.0, 2.0] and read_arrays(tmp_path / "b.npz") == {}


@pytest.mark.parametrize(
    "arrays",
    [
        {"x.sum": SUMS},
        {"x.count": COUNTS},
        {"x": SUMS},
        {"x.sum": SUMS, "x.count": COUNTS[:2]},
        {"x.sum": SUMS[:0], "x.count": COUNTS[:0]},
        {"x.sum": np.ones((3, 1)), "x.count": np.ones((3, 1))},
        {"x.sum": np.array(1.0), "x.count": np.array(1)},
        {"x.sum": np.array(["a"]), "x.count": np.ones(1)},
        {"x.sum": np.array(["2026-01-01"], "M8[D]"), "x.count": np.ones(1)},
        {"x.sum": np.zeros(3, [("a", "i4")]), "x.count": COUNTS},
        {"x.sum": SUMS * np.nan, "x.count": COUNTS},
        {"x.sum": SUMS, "x.count": COUNTS * np.inf},
        {"x.sum": SUMS, "x.count": COUNTS - 2},
        {"x.sum": SUMS.astype(np.int8), "x.count": COUNTS.astype(np.int8)},
    ],
)
def test_arrays_that_are_not_pairs_of_finite_sequences_are_an_error(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    np.savez(tmp_path / "a.npz", allow_pickle=False, **arrays)
    with pytest.raises(RunError, match=r"a\.npz is corrupt \(x"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_unsupported_compression_is_an_error(tmp_path: Path, compression: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
        archive.writestr("x.sum.npy", b"no array")
    with pytest.raises(RunError, match=r"a\.npz is corrupt \(its compression"):
        read_arrays(tmp_path / "a.npz")


def test_arrays_that_would_fill_the_memory_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = np.zeros(10**6)
    merge_arrays(tmp_path / "a.npz", {"x.sum": zeros, "x.count": zeros})
    assert (tmp_path / "a.npz").stat().st_size < 10**5
    monkeypatch.setattr(loss_arrays, "MAX_ARRAY_BYTES", 10**7)
    with pytest.raises(RunError, match=r"16,000,\d* bytes; the limit is 10,000,000"):
        read_arrays(tmp_path / "a.npz")


def test_no_more_bytes_are_decompressed_than_declared(tmp_path: Path) -> None:
    merge_arrays(tmp_path / "a.npz", {"x.sum": np.zeros(10**6), "x.count": np.zeros(10**6)})
    data = (tmp_path / "a.npz").read_bytes()
    size = (8 * 10**6 + 128).to_bytes(4, "little")
    assert data.count(size) == 4  # in the headers of both arrays and in the central directory
    (tmp_path / "a.npz").write_bytes(data.replace(size, (128).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(RunError, match=r"a\.npz is corrupt \(Bad CRC-32"):
        read_arrays(tmp_path / "a.npz")
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


@pytest.mark.parametrize("header", ["(" * 200, "[" * 90, "-" * 9000 + "1", "1" * 5000])
def test_a_header_that_numpy_cannot_parse_is_an_error(tmp_path: Path, header: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
        archive.writestr("x.sum.npy", start + header.encode())
    with pytest.raises(RunError, match=r"a\.npz is corrupt"):
        read_arrays(tmp_path / "a.npz")


def test_files_of_another_format_are_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "bare.npy", SUMS)
    huge = (tmp_path / "bare.npy").read_bytes().replace(b"(3,), ", b"(9999999999999,), ")
    for contents in (b"", b"PK", (tmp_path / "bare.npy").read_bytes(), huge):
        (tmp_path / "a.npz").write_bytes(contents)
        with pytest.raises(RunError, match=r"a\.npz is corrupt"):
            read_arrays(tmp_path / "a.npz")


KEYS = {"data": "f", "split": "test", "length": 3, "stride": None, "swap": None, "at_tokens": None}
ROW = {**KEYS, "protocol": "by_position", "count": 3, "full_count": 3, "sum": 3.0, "loss": 1.0}


@pytest.mark.parametrize(
    ("read", "name"),
    [(read_position_losses, "f.test.3"), (read_blocks, "f.test.by_position.3.-.-")],
)
def test_arrays_of_another_run_are_an_error(
    tmp_path: Path, read: Callable[..., dict[str, np.ndarray]], name: str
) -> None:
    file = tmp_path / "a.npz"
    merge_arrays(file, {f"{name}.sum": SUMS, f"{name}.count": COUNTS})
    assert read(file, [ROW]).keys() == {f"{name}.sum", f"{name}.count"}
    smaller = {**ROW, "count": 2, "sum": 2.0, "budget_tokens": 2}
    timed = {**smaller, "budget_tokens": None, "budget_seconds": 1.0}
    for rows in ([ROW, smaller], [timed], [timed, smaller], [], [{**ROW, "split": "train"}]):
        assert read(file, rows)
    for other in ({**ROW, "sum": 3.1, "loss": 3.1 / 3}, {**ROW, "count": 4, "loss": 0.75}, smaller):
        with pytest.raises(RunError, match=r"a\.npz does not match evaluation\.json"):
            read(file, [other])


def test_losses_at_more_positions_than_the_window_has_are_an_error(tmp_path: Path) -> None:
    arrays = {"f.test.3.sum": np.append(SUMS, 0), "f.test.3.count": np.append(COUNTS, 0)}
    merge_arrays(tmp_path / "a.npz", arrays)
    with pytest.raises(RunError, match="4 positions instead of 3"):
        read_position_losses(tmp_path / "a.npz", [ROW])
