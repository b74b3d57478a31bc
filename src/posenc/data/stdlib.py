"""The source and documentation text of the running Python's standard library."""

import os
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from posenc.data.corpus import Corpus
from posenc.data.digest import digest_of
from posenc.data.splits import Shares

_SUFFIXES = (".py", ".rst", ".txt")
_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
_LEFT_OUT |= {"encodings"}  # tables of character sets: data, not text
# Written when Python is built, with the paths of the machine that built it.
_BUILD_FACTS = "_sysconfigdata"


class StdlibCorpus(Corpus):
    """One document per file, in the order of the relative paths; a file's path decides its split.

    Files that are not UTF-8 are left out.
    """

    name = "python_stdlib"

    def __init__(self, validation_share: float, test_share: float) -> None:
        self._shares = Shares(validation_share, test_share)
        self._root = Path(sysconfig.get_path("stdlib"))

    def splits(self) -> tuple[str, ...]:
        return self._shares.splits()

    def documents(self, split: str) -> Iterator[str]:
        for _, text in self._files(split):
            yield text

    def split_digest(self, split: str) -> str:
        return digest_of(
            [(path, sha256(text.encode()).hexdigest()) for path, text in self._files(split)]
        )

    def _files(self, split: str) -> Iterator[tuple[str, str]]:
        for path in self._paths():
            if self._shares.split_of(path.encode()) != split:
                continue
            try:
                text = (self._root / path).read_bytes().decode()
            except UnicodeDecodeError:
                continue
            if text.strip():
                yield path, text

    def _paths(self) -> list[str]:
        found = []
        for folder, subfolders, files in os.walk(self._root):
            subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
            found += [
                (Path(folder) / name).relative_to(self._root).as_posix()
                for name in files
                if name.endswith(_SUFFIXES) and not name.startswith(_BUILD_FACTS)
            ]
        return sorted(found)
