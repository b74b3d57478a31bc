import os
import sysconfig
from pathlib import Path

import pytest

from posenc.config.settings import SPLITS
from posenc.data.stdlib import StdlibCorpus


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of 60 modules and a page of docs, and files outside the corpus."""
    for number in range(60):
        _write(tmp_path / f"package{number % 3}" / f"module{number}.py", f"number = {number}\n")
    for folder in ("site-packages", "dist-packages", "__pycache__", "test", "x/tests", "idle_test"):
        _write(tmp_path / folder / "excluded.py", "excluded\n")
    _write(tmp_path / "_sysconfigdata__linux.py", "excluded\n")
    _write(tmp_path / "module.so", "excluded\n")
    _write(tmp_path / "empty.py", "")
    (tmp_path / "latin.py").write_bytes(b"excluded = '\xe9'\n")
    _write(tmp_path / "docs" / "guide.rst", "guide\n")
    monkeypatch.setattr(sysconfig, "get_path", {"stdlib": str(tmp_path)}.__getitem__)
    return tmp_path


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_splits_partition_the_sources_and_docs(tree: Path) -> None:
    corpus = StdlibCorpus(0.2, 0.2)
    by_split = [list(corpus.documents(split)) for split in corpus.splits()]
    assert all(by_split)
    texts = [text for documents in by_split for text in documents]
    assert sorted(texts) == sorted([f"number = {n}\n" for n in range(60)] + ["guide\n"])


def test_documents_are_ordered_by_path(tree: Path) -> None:
    paths = sorted(path.relative_to(tree).as_posix() for path in tree.glob("package*/*.py"))
    expected = [(tree / path).read_text() for path in paths]
    documents = list(StdlibCorpus(0, 0).documents("train"))
    assert [text for text in documents if text != "guide\n"] == expected


def test_a_changed_file_changes_its_split_only(tree: Path) -> None:
    corpus = StdlibCorpus(0.2, 0.2)
    text = next(corpus.documents("validation"))
    number = text.split()[-1]
    before = {split: corpus.split_digest(split) for split in SPLITS}
    digest = corpus.digest()
    _write(next(tree.glob(f"package*/module{number}.py")), "changed\n")
    after = {split: corpus.split_digest(split) for split in SPLITS}
    assert [split for split in SPLITS if before[split] != after[split]] == ["validation"]
    assert corpus.digest() != digest


def test_fractions_change_the_digest(tree: Path) -> None:
    assert StdlibCorpus(0.2, 0.2).digest() != StdlibCorpus(0.2, 0.3).digest()


def test_the_real_standard_library_is_a_corpus() -> None:
    corpus = StdlibCorpus(0.04, 0.04)
    source = Path(os.__file__).read_text()
    splits = [split for split in SPLITS if source in corpus.documents(split)]
    assert len(splits) == 1
    assert sum(len(text) for text in corpus.documents("train")) > 5_000_000
