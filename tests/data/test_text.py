import json
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.settings import SPLITS
from posenc.data import text
from posenc.data.text import TextCorpus


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.txt").write_text("first é\n")
    (tmp_path / "b.txt").write_text("second\n")
    rows = [
        {"text": "one", "title": "x"},
        {"text": "  ", "title": ""},
        {"text": "two", "title": ""},
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = {"text": ["un", None, "deux"], "title": ["t1", "t2", "t3"], "year": [1, 2, 3]}
    pq.write_table(pa.table(table), tmp_path / "d.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_file_format_is_read(folder: Path) -> None:
    corpus = TextCorpus(train="a.txt", validation="c.jsonl", test="d.parquet")
    documents = {split: list(corpus.documents(split)) for split in corpus.splits()}
    assert documents == {
        "train": ["first é\n"],
        "validation": ["one", "two"],
        "test": ["un", "deux"],
    }


def test_another_column_can_be_read(folder: Path) -> None:
    corpus = TextCorpus(test="d.parquet", column="title")
    assert list(corpus.documents("test")) == ["t1", "t2", "t3"]
    assert corpus.digest() != TextCorpus(test="d.parquet").digest()


def test_a_single_split_is_enough(folder: Path) -> None:
    assert TextCorpus(test=str(folder / "a.txt")).splits() == ("test",)


def test_a_file_named_several_times_is_read_once(folder: Path) -> None:
    by_glob = TextCorpus(train="*.txt")
    by_list = TextCorpus(train=["b.txt", "./a.txt", "[ab].txt"])
    from_hydra = TextCorpus(train=OmegaConf.create(["a.txt", "b.txt"]))
    assert sorted(by_glob.documents("train")) == ["first é\n", "second\n"]
    assert list(by_glob.documents("train")) == list(by_list.documents("train"))
    assert by_glob.digest() == by_list.digest() == from_hydra.digest()


def test_the_digest_depends_on_contents_not_on_paths(folder: Path) -> None:
    before = TextCorpus(train="*.txt")
    documents, digest = list(before.documents("train")), before.digest()
    (folder / "elsewhere").mkdir()
    (folder / "a.txt").rename(folder / "elsewhere" / "z.txt")
    moved = TextCorpus(train="**/*.txt")
    assert (list(moved.documents("train")), moved.digest()) == (documents, digest)
    (folder / "b.txt").write_text("changed\n")
    assert TextCorpus(train="**/*.txt").digest() != digest


def test_a_single_document_is_cut_into_three(folder: Path) -> None:
    text = "".join(f"{number:03}\n" for number in range(100))
    (folder / "long.txt").write_text(text)
    corpus = TextCorpus(paths="long.txt", validation_fraction=0.1, test_fraction=0.2)
    parts = [list(corpus.documents(split)) for split in SPLITS]
    assert parts == [[text[:280]], [text[280:320]], [text[320:]]]


def test_many_documents_are_assigned_whole(folder: Path) -> None:
    texts = [f"document {number}" for number in range(1000)]
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "many.jsonl").write_text(rows)
    corpus = TextCorpus(paths="many.jsonl", validation_fraction=0.1, test_fraction=0.2)
    by_split = {split: list(corpus.documents(split)) for split in SPLITS}
    assert sorted(chain.from_iterable(by_split.values())) == sorted(texts)
    assert 60 < len(by_split["validation"]) < 140
    assert 140 < len(by_split["test"]) < 260
    other = TextCorpus(paths="many.jsonl", validation_fraction=0.1, test_fraction=0.1)
    assert other.split_digest("validation") != corpus.split_digest("validation")


def test_a_dictionary_encoded_column_is_text(folder: Path) -> None:
    column = pa.array(["a b", "c", "a b"]).dictionary_encode()
    pq.write_table(pa.table({"text": column}), folder / "encoded.parquet")
    assert list(TextCorpus(train="encoded.parquet").documents("train")) == ["a b", "c", "a b"]


def test_rows_without_text_do_not_count_as_documents(folder: Path) -> None:
    texts = [f"a text of {number}\n" for number in range(100)] + [None, " "] * 100
    pq.write_table(pa.table({"text": texts}), folder / "gaps.parquet")
    corpus = TextCorpus(paths="gaps.parquet", validation_fraction=0.3, test_fraction=0.3)
    assert all(len(list(corpus.documents(split))) == 100 for split in SPLITS)


def test_a_file_that_changes_while_it_is_read_is_an_error(folder: Path) -> None:
    corpus = TextCorpus(train="a.txt", test="b.txt")
    corpus.digest()
    corpus.check_unchanged()
    (folder / "b.txt").write_text("changed\n")
    with pytest.raises(ConfigError, match=r"'b\.txt' changed while it was being read"):
        corpus.check_unchanged()


def test_a_file_of_holes_is_rejected_before_it_is_read(folder: Path) -> None:
    with (folder / "a.txt").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ConfigError, match=r"a\.txt' is a sparse file"):
        TextCorpus(paths="a.txt", test_fraction=0).digest()


def test_a_fraction_of_zero_gives_no_split(folder: Path) -> None:
    corpus = TextCorpus(paths="a.txt", test_fraction=0)
    assert corpus.splits() == ("train", "validation")


INVALID_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({}, "data.train, data.validation and data.test"),
    ({"paths": "a.txt", "test": "b.txt"}, "data.paths .* cannot be combined with data.test"),
    ({"train": "a.tx"}, r"data.train: 'a.tx' does not exist \(did you mean a.txt"),
    ({"train": "no/where.txt"}, "data.train: 'no/where.txt' does not exist"),
    ({"train": "~no_such_user/a.txt"}, "data.train: '~no_such_user/a.txt' does not exist"),
    ({"train": "/dev/null"}, "data.train: '/dev/null' is not a regular file"),
    ({"train": "link.txt"}, "data.train: 'link.txt' is a link to gone.txt, which does not exist"),
    ({"test": "*.rst"}, r"data.test: '\*.rst' matches no file"),
    ({"train": []}, "data.train is an empty list"),
    ({"train": "."}, r"data.train: '.' is a folder"),
    ({"train": "empty.txt"}, "data.train: 'empty.txt' is empty"),
    ({"train": "notes.md"}, "'notes.md' has .* '.md' .*.txt, .jsonl, .parquet"),
    ({"train": "d.parquet", "column": "body"}, "no column 'body'.*: text, title, year"),
    ({"train": "c.jsonl", "column": "body"}, "no column 'body'.*: text, title"),
    ({"train": "d.parquet", "column": "year"}, "column 'year' .* int64"),
    ({"train": "a.txt", "column": "body"}, "data.column='body' has no effect"),
    ({"train": "a.txt", "test_fraction": 0.1}, "only apply to data.paths"),
    ({"train": "fake.parquet"}, "'fake.parquet' is not a Parquet file"),
    ({"train": "broken.jsonl"}, "'broken.jsonl', line 1 is not JSON"),
    ({"train": "nested.jsonl"}, "'nested.jsonl', line 1 is not JSON"),
    ({"train": "twice.parquet"}, "'twice.parquet' has 2 columns named 'text'"),
    ({"train": "list.jsonl"}, "'list.jsonl', line 1 is of type list"),
]


@pytest.mark.parametrize(
    ("parameters", "message"),
    INVALID_SETTINGS,
    ids=[message[:40] for _, message in INVALID_SETTINGS],
)
def test_invalid_settings_are_reported_before_documents_are_read(
    folder: Path, parameters: dict[str, Any], message: str
) -> None:
    (folder / "empty.txt").touch()
    (folder / "link.txt").symlink_to("gone.txt")
    (folder / "notes.md").write_text("text")
    (folder / "fake.parquet").write_text("text")
    (folder / "broken.jsonl").write_text("{'text': 1}\n")
    (folder / "list.jsonl").write_text("[1]\n")
    (folder / "nested.jsonl").write_text(f"{'[' * 100_000}{']' * 100_000}\n")
    columns = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(columns, ["text", "text"]), folder / "twice.parquet")
    with pytest.raises(ConfigError, match=message):
        TextCorpus(**parameters)


MEBIBYTE = "é".encode() * (1 << 19)


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"\xff" + MEBIBYTE, 0),
        (MEBIBYTE + b"\xff" + MEBIBYTE, 1 << 20),
        (b"a" + MEBIBYTE + b"\xff", (1 << 20) + 1),
        (MEBIBYTE + b"\xc3", 1 << 20),
    ],
    ids=["first", "at a chunk", "across a chunk", "cut short"],
)
def test_the_first_byte_that_is_not_utf8_is_named(folder: Path, data: bytes, offset: int) -> None:
    (folder / "bad.txt").write_bytes(data)
    with pytest.raises(ConfigError, match=f"'bad.txt' is not UTF-8 at byte {offset};"):
        TextCorpus(train="bad.txt").digest()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"title": "x"}', "no column 'text'.*: title"),
        ('{"text": 3}', "line 2: 'text' .* int"),
        ('{"text": "\\ud800"}', "line 2: .*unpaired surrogate"),
    ],
)
def test_an_invalid_row_is_reported_with_its_line(folder: Path, row: str, message: str) -> None:
    (folder / "rows.jsonl").write_text('{"text": "x"}\n' + row + "\n")
    with pytest.raises(ConfigError, match=message):
        list(TextCorpus(train="rows.jsonl").documents("train"))


def test_a_pattern_that_searches_too_many_folders_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A symlink to a parent folder makes the search endless."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text("x")
    monkeypatch.setattr(text, "_MAX_FOLDERS", 5)
    TextCorpus(train=str(tmp_path / "**" / "*.txt"))
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="more than 5 folders"):
        TextCorpus(train=str(tmp_path / "**" / "*.txt"))
    for number in range(6):
        (tmp_path / "wide" / str(number)).mkdir(parents=True)
    with pytest.raises(ConfigError, match="more than 5 folders"):
        TextCorpus(train=str(tmp_path / "wide" / "*" / "nothing*.txt"))


def test_a_file_or_a_copy_of_it_in_two_splits_is_an_error(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    (folder / "copy.txt").write_text("a")
    for test in ("a.txt", "copy.txt"):
        with pytest.raises(ConfigError, match=r"data\.test.*same contents"):
            TextCorpus(train="a*.txt", test=test)
