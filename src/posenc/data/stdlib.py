"""The source and documentation text of the running Python's standard library."""

import os
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from posenc.config.values import json_digest
from posenc.data.corpus import Corpus, SplitFractions

_SUFFIXES = (".py", ".rst", ".txt")
_EXCLUDED_FOLDERS = {
    "site-packages",
    "dist-packages",
    "__pycache__",
    "test",
    "tests",
    "idle_test",
    "encodings",  # codec tables, not text
}
# These files are written when Python is built and contain paths on the build machine.
_BUILD_INFO_PREFIX = "_sysconfigdata"


class StdlibCorpus(Corpus):
    """One document per file, in the order of relative paths; a hash of the path selects the split.

    Files that are not UTF-8 are skipped.
    """

    name = "python_stdlib"

    def __init__(self, validation_fraction: float, test_fraction: float) -> None:
        self._fractions = SplitFractions(validation_fraction, test_fraction)
        self._root = Path(sysconfig.get_path("stdlib"))

    def splits(self) -> tuple[str, ...]:
        return self._fractions.splits()

    def documents(self, split: str) -> Iterator[str]:
        for _, text in self._files(split):
            yield text

    def split_digest(self, split: str) -> str:
        return json_digest(
            [(path, sha256(text.encode()).hexdigest()) for path, text in self._files(split)]
        )

    def _files(self, split: str) -> Iterator[tuple[str, str]]:
        for path in self._paths():
            if self._fractions.assign_split(path.encode()) != split:
                continue
            try:
                text = (self._root / path).read_bytes().decode()
            except UnicodeDecodeError:
                continue
            if text.strip():
                yield path, text

    def _paths(self) -> list[str]:
        paths = []
        for folder, subfolders, files in os.walk(self._root):
            subfolders[:] = [name for name in subfolders if name not in _EXCLUDED_FOLDERS]
            paths += [
                (Path(folder) / name).relative_to(self._root).as_posix()
                for name in files
                if name.endswith(_SUFFIXES) and not name.startswith(_BUILD_INFO_PREFIX)
            ]
        return sorted(paths)
