"""Detects corrupt files of a prepared corpus, which would silently change the results.

`meta.json` has the SHA-256 of every other file and a digest of its own contents. Reading a large
corpus takes time, so the files are verified once per machine, and again when a file's size or
timestamps have changed; `.verified-<machine>.json` in the corpus's folder records the sizes and
timestamps of the verified files.
"""

import json
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posenc.config.errors import RunError, abbreviate, describe_error
from posenc.config.values import json_digest, wrong_types
from posenc.runs.files import file_sha256, is_sparse, read_json, read_text, write_json

META_TYPES: dict[str, Any] = {
    "name": str,
    "fingerprint": str,
    "splits": dict[str, dict[str, int]],
    "dtype": Literal["<u2", "<u4"],
    "vocab_size": int,
    "end_of_text": int,
    "sha256": dict[str, str],
}
"""The keys of `meta.json` other than its own digest, and their types."""
MAX_OTHER_FILE_BYTES = 2**30
"""The maximum size of any file but the token files, whose sizes follow from `meta.json`."""
META_READ_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions that reading a corrupt `meta.json` can raise."""
COUNTS = {"tokens", "documents", "words", "bytes"}
"""The keys of each split in `meta.json`."""


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write the `meta.json` of a prepared corpus, with the digests of all files and of itself."""
    digests = {file.name: file_sha256(file) for file in sorted(folder.iterdir())}
    meta = {**meta, "sha256": digests}
    write_json(folder / "meta.json", {**meta, "digest": json_digest(meta)})


def read_meta(folder: Path) -> dict[str, Any]:
    """Return the `meta.json` of a prepared corpus.

    Raises RunError if that file or one that it describes is missing or corrupt. A corpus prepared
    by posenc 0.1 has no digests: only the sizes of its token files and the range of their ids are
    checked.
    """
    meta: dict[str, Any] = {}
    try:
        if (folder / "meta.json").is_file():
            meta = json.loads(read_text(folder / "meta.json"))
            reason = _corruption(folder, meta)
        else:  # missing, or not a regular file: reading a pipe might block forever
            reason = "meta.json is missing"
    except META_READ_ERRORS as error:
        reason = f"meta.json has unexpected contents ({describe_error(error)})"
    if reason:
        raise RunError(
            f"the prepared corpus {folder} is corrupt: {reason}; delete this folder, and the next"
            f" command will prepare the corpus again"
        )
    return meta


def _corruption(folder: Path, meta: dict[str, Any]) -> str | None:
    """Return what is wrong with the files that `meta` describes, or None."""
    if missing := META_TYPES.keys() - {"sha256", *meta}:
        return f"meta.json lacks {', '.join(sorted(missing))}"
    own_digest = meta.pop("digest", None)  # corpora of earlier versions have none
    if own_digest is not None and json_digest(meta) != own_digest:
        return "the contents of meta.json have changed since the corpus was prepared"
    if wrong := wrong_types(meta, META_TYPES):
        return f"meta.json has values of the wrong type: {', '.join(wrong)}"
    if meta["fingerprint"] != folder.name:
        return f"it has the files of the corpus {abbreviate(meta['fingerprint'])}"
    if incomplete := [split for split, counts in meta["splits"].items() if COUNTS - counts.keys()]:
        return f"meta.json lacks counts for the splits {', '.join(incomplete)}"
    if negative := [s for s, counts in meta["splits"].items() if min(counts.values()) < 0]:
        return f"meta.json has negative counts for the splits {', '.join(negative)}"
    if not 0 <= meta["end_of_text"] < meta["vocab_size"]:
        return (
            f"the end-of-text token {meta['end_of_text']} is not in the vocabulary, which has"
            f" {meta['vocab_size']} tokens"
        )
    return _file_corruption(folder, meta)


def _file_corruption(folder: Path, meta: dict[str, Any]) -> str | None:
    """Return what is wrong with the first corrupt file, or None."""
    digests, itemsize = meta.get("sha256", {}), np.dtype(meta["dtype"]).itemsize
    sizes = {f"{s}.bin": counts["tokens"] * itemsize for s, counts in meta["splits"].items()}
    states: dict[str, list[int]] = {}
    for name in {**sizes, **digests}:
        if name != Path(name).name:
            return f"{abbreviate(name)} is not the name of a file"
        if not (folder / name).is_file():
            return f"{name} is missing"
        stat = (folder / name).stat()
        # Copy tools can restore mtime, but cannot set ctime.
        states[name] = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        expected = sizes.get(name, stat.st_size)
        if stat.st_size != expected:
            return f"{name} has {stat.st_size:,} bytes instead of {expected:,}"
        if name not in sizes and stat.st_size > MAX_OTHER_FILE_BYTES:
            limit = f"the limit of {MAX_OTHER_FILE_BYTES:,}"
            return f"{name} has {stat.st_size:,} bytes, more than {limit}"
        if is_sparse(folder / name):
            return f"{name} is a sparse file: almost all of its {stat.st_size:,} bytes are holes"
    record = folder / f".verified-{platform.node()}.json"
    with suppress(RunError):  # the record is missing or corrupt; it is written again
        if read_json(record) == states:
            return None
    for name, digest in digests.items():
        if file_sha256(folder / name) != digest:
            return f"the contents of {name} have changed since the corpus was prepared"
    for name in sizes:
        highest = int(np.memmap(folder / name, dtype=meta["dtype"], mode="r").max())
        if highest >= meta["vocab_size"]:
            return (
                f"{name} contains the token id {highest}, but the vocabulary has only"
                f" {meta['vocab_size']} tokens"
            )
    with suppress(OSError):  # a corpus in a folder without write permission is verified each time
        write_json(record, states)
    return None
