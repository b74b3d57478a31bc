"""The Python source of the installed packages that posenc depends on, split by package."""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from posenc.config.errors import ConfigError
from posenc.config.settings import SPLITS
from posenc.config.values import json_digest
from posenc.data.corpus import Corpus
from posenc.runs.files import file_sha256

_EXCLUDED_FOLDERS = {"test", "tests", "testing", "_vendor", "_vendored", "vendored"}
_MAX_FILE_BYTES = 500_000
"""Larger files are excluded, because they are data tables or generated code."""


class PackagesCorpus(Corpus):
    """One document per source file of every package that posenc requires, directly or indirectly.

    `validation` and `test` name the packages of these splits; all others are in the train split,
    so no package is in two splits. Test suites, bundled copies of other packages, files over
    500 kB and files that are not UTF-8 are left out. So are near-duplicates: files in which more
    than a fraction `max_overlap` of the distinct lines occur in earlier files that were kept. Files
    are compared in the order test, validation, train, and within a split by package name and path:
    if a training file is a near-duplicate of a held-out file, the held-out file is kept. The text
    depends on the installed versions, which constraints.txt pins, and is identified by the hashes
    that pip recorded for its files. `documents` raises ConfigError if a file does not match its
    hash.
    """

    name = "python_packages"

    def __init__(self, validation: Sequence[str], test: Sequence[str], max_overlap: float) -> None:
        if not 0 <= max_overlap <= 1:
            raise ConfigError(f"data.max_overlap={max_overlap} must be between 0 and 1")
        self._held_out = {"validation": list(validation), "test": list(test)}
        if shared := sorted(set(validation) & set(test)):
            raise ConfigError(
                f"data.validation and data.test both contain {', '.join(shared)}; list each"
                " package in only one of them"
            )
        self._max_overlap = max_overlap
        self._texts_by_split: dict[str, list[str]] = {}
        self._seen_lines: set[int] = set()

    def splits(self) -> tuple[str, ...]:
        return SPLITS

    def documents(self, split: str) -> Iterator[str]:
        for name, sources in self._sources.items():  # splits after this one are not read
            if name not in self._texts_by_split:
                self._texts_by_split[name] = list(self._without_duplicates(sources))
            if name == split:
                yield from self._texts_by_split[name]
                return

    def split_digest(self, split: str) -> str:
        files = {
            key: [(file.as_posix(), _recorded_hash(package, file)) for package, file in sources]
            for key, sources in self._sources.items()
        }
        return json_digest({"split": split, "files": files, "overlap": self._max_overlap})

    def _without_duplicates(
        self, sources: Sequence[tuple[Distribution, PackagePath]]
    ) -> Iterator[str]:
        """Yield the text of each file, except near-duplicates of files kept in any split so far.

        Leaves out files that are blank, too large or not UTF-8.
        """
        for package, file in sources:
            content = _installed_content(package, file)
            if len(content) > _MAX_FILE_BYTES:
                continue
            try:
                text = content.decode()
            except UnicodeDecodeError:
                continue
            lines = _line_hashes(text)
            if lines and len(lines & self._seen_lines) <= self._max_overlap * len(lines):
                yield text
                self._seen_lines |= lines

    @cached_property
    def _sources(self) -> dict[str, list[tuple[Distribution, PackagePath]]]:
        """The source files of each split with their packages, the test split first."""
        packages = required_packages("posenc")
        for split, names in self._held_out.items():
            if missing := [name for name in names if name not in packages]:
                raise ConfigError(
                    f"data.{split}: not among the installed packages that posenc requires:"
                    f" {', '.join(missing)} (available: {', '.join(sorted(packages))})"
                )
        held_out = {name for names in self._held_out.values() for name in names}
        names = {**self._held_out, "train": sorted(packages.keys() - held_out)}
        return {
            split: [
                (packages[name], file)
                for name in sorted(names[split])
                for file in sorted(packages[name].files or [])
                if file.suffix == ".py" and not _EXCLUDED_FOLDERS.intersection(file.parts)
            ]
            for split in reversed(SPLITS)
        }


def required_packages(name: str) -> dict[str, Distribution]:
    """Return the installed direct and indirect requirements of `name`, by normalized name.

    Extras are not followed. Names are normalized as PyPA specifies: lower case, with hyphens.
    """
    packages: dict[str, Distribution] = {}
    pending = [name]
    while pending:
        for line in distribution(pending.pop()).requires or []:
            requirement = Requirement(line)
            required = canonicalize_name(requirement.name)
            if required in packages or required == name:
                continue
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            try:
                packages[required] = distribution(requirement.name)
            except PackageNotFoundError:  # installed without its dependencies
                continue
            pending.append(requirement.name)
    return packages


def _installed_content(package: Distribution, file: PackagePath) -> bytes:
    """Return a file's contents; raises ConfigError if they do not match its hash in RECORD."""
    path = Path(str(package.locate_file(file)))
    content = path.read_bytes() if path.is_file() else b""
    if file.hash is not None:
        digest = hashlib.new(file.hash.mode, content).digest()
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            raise ConfigError(
                f"data=python_packages: {path} is missing or has been edited since"
                f" {package.name} {package.version} was installed; reinstall the package, or choose"
                f" other data"
            )
    return content


def _recorded_hash(package: Distribution, file: PackagePath) -> str:
    """Return the hash that the installer recorded or, without one, the hash of the file."""
    if file.hash is not None:
        return file.hash.value
    path = Path(str(package.locate_file(file)))
    return file_sha256(path) if path.is_file() else ""


def _line_hashes(text: str) -> set[int]:
    """Return 64-bit hashes of the distinct non-blank lines, ignoring indentation."""
    lines = {line.strip() for line in text.splitlines()} - {""}
    return {int.from_bytes(hashlib.sha256(line.encode()).digest()[:8], "big") for line in lines}
