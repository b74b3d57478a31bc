"""Corpora of the Hugging Face Hub, read offline from a local cache in the Hub's layout."""

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from posenc.config.errors import ConfigError
from posenc.config.values import json_digest
from posenc.data.hub import HubCorpus

COMMIT = "b08601e04326c79dfdd32d625aee71d232d685c3"
CARD = """---
configs:
- config_name: wikitext-103-v1
  data_files:
  - {split: train, path: wikitext-103-v1/train-*}
  - {split: validation, path: wikitext-103-v1/validation-*}
---
"""
# `datasets` reads environment variables when it is imported, hence a separate process.
SCRIPT = """
import json, sys
from pathlib import Path
from posenc.config.errors import ConfigError
from posenc.data.hub import HubCorpus
from posenc.data.prepare import prepare
from posenc.data.tokenizers.word import WordTrainer
corpus = HubCorpus(**json.loads(sys.argv[1]))
try:
    data = prepare(corpus, WordTrainer(), Path(sys.argv[2]), print)
    arrays = {split: data.token_array(split) for split in data.splits}
    counts = {split: [len(array.tokens), array.documents] for split, array in arrays.items()}
    text = data.tokenizer.decode(data.token_array("train").tokens.tolist())
    print(json.dumps({"counts": counts, "train": text}))
except ConfigError as error:
    print(json.dumps({"error": str(error)}))
"""
PARAMETERS: dict[str, Any] = {
    "path": "Salesforce/wikitext",
    "name": "wikitext-103-v1",
    "revision": COMMIT,
    "column": "text",
    "document_start": "^ = [^=].* = $",
}


def _prepare(home: Path, **parameters: Any) -> dict:
    environment = os.environ | {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:1"}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps(PARAMETERS | parameters)]
    result = subprocess.run(
        [*command, str(home / "prepared")], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def _cache(home: Path, **splits: list[str]) -> None:
    repository = home / "hub" / "datasets--Salesforce--wikitext"
    snapshot = repository / "snapshots" / COMMIT
    (snapshot / "wikitext-103-v1").mkdir(parents=True)
    (repository / "blobs").mkdir()
    (snapshot / "README.md").write_text(CARD)
    for split, rows in splits.items():
        blob = repository / "blobs" / split
        pq.write_table(pa.table({"text": rows}), blob)
        (snapshot / "wikitext-103-v1" / f"{split}-00000-of-00001.parquet").symlink_to(blob)


def _row(line: str) -> str:
    """A line as stored on the Hub: blank lines are empty, the others keep their newline."""
    return f"{line}\n" if line.strip() else ""


@pytest.mark.slow
def test_a_cached_commit_is_read_without_a_network(tmp_path: Path, wikitext: Path) -> None:
    train = ["", " = One = \n", "", " a b a \n", " = = Part = = \n", "", " = Two = \n", " c \n"]
    lines = (wikitext / "validation.txt").read_text().split("\n")
    _cache(tmp_path, train=train, validation=[_row(line) for line in lines[:-1]])
    result = _prepare(tmp_path)
    assert result["train"] == "\n= One =\n\na b a\n= = Part = =\n\n= Two =\nc\n"
    assert result["counts"]["train"] == [23, 2]
    tokens, documents = result["counts"]["validation"]
    assert tokens == 217_646
    assert documents == 60


@pytest.mark.slow
def test_rows_can_be_documents(tmp_path: Path) -> None:
    _cache(tmp_path, train=["a b\n", "", "c\n"], validation=["a\n"])
    assert _prepare(tmp_path, document_start=None)["counts"]["train"] == [5, 2]


@pytest.mark.slow
def test_without_a_network_there_is_one_error_message(tmp_path: Path) -> None:
    result = _prepare(tmp_path)
    assert "Salesforce/wikitext (wikitext-103-v1)" in result["error"]
    for word in ("Hugging Face Hub", "data=python_stdlib", "data=text data.train=", "HF_HOME"):
        assert word in result["error"]
    assert "\n" not in result["error"]
    assert not (tmp_path / "prepared").is_dir() or not list((tmp_path / "prepared").glob("[!.]*"))


@pytest.mark.slow
def test_a_cache_without_some_of_its_files_is_an_error(tmp_path: Path) -> None:
    _cache(tmp_path, train=["a\n"], validation=["a\n"])
    (folder,) = tmp_path.rglob("snapshots/*/wikitext-103-v1")
    (folder / "train-00000-of-00001.parquet").rename(folder / "train-00000-of-00002.parquet")
    error = _prepare(tmp_path)["error"]
    assert (
        "wikitext-103-v1/train-00001-of-00002.parquet" in error
        and "is missing from the local cache" in error
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_large", [True, False])
def test_a_cached_file_that_was_changed_is_an_error(tmp_path: Path, is_large: bool) -> None:
    _cache(tmp_path, train=["a\n"], validation=["a\n"])
    (link,) = tmp_path.rglob("snapshots/*/wikitext-103-v1/train-*")
    content = link.read_bytes()
    git_object = f"blob {len(content)}\0".encode() + content
    name = (sha256(content) if is_large else sha1(git_object)).hexdigest()
    blob = link.resolve().rename(link.resolve().with_name(name))
    link.unlink()
    link.symlink_to(blob)
    assert "counts" in _prepare(tmp_path)
    shutil.rmtree(tmp_path / "prepared")
    pq.write_table(pa.table({"text": ["b\n"]}), blob)
    assert "is not the file that the Hub has for this commit" in _prepare(tmp_path)["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "part"),
    [([None, "a\n", None], None), ([1, 2], "type int, not a string"), (b"PAR1", "cannot be read")],
)
def test_null_values_are_skipped_and_other_values_and_corrupt_files_are_errors(
    tmp_path: Path, rows: Any, part: str | None
) -> None:
    _cache(tmp_path, train=["a\n"], validation=["a\n"])
    blob = tmp_path / "hub" / "datasets--Salesforce--wikitext" / "blobs" / "train"
    if isinstance(rows, bytes):
        contents = bytearray(blob.read_bytes())
        contents[4:24] = bytes(20)
        blob.write_bytes(contents)
    else:
        pq.write_table(pa.table({"text": rows}), blob)
    result = _prepare(tmp_path, document_start=None)
    if part is None:
        assert result["counts"]["train"][1] == 1
    else:
        assert part in result["error"], result


@pytest.mark.slow
def test_a_missing_configuration_or_column_is_named(tmp_path: Path) -> None:
    _cache(tmp_path, train=["a\n"], validation=["a\n"])
    assert "data.name=wikitext-2-v1" in _prepare(tmp_path, name="wikitext-2-v1")["error"]
    error = _prepare(tmp_path, column="body")["error"]
    assert "data.column" in error and "'body'" in error and "(available: text)" in error


@pytest.mark.slow
def test_a_dataset_cannot_name_files_outside_its_repository(tmp_path: Path) -> None:
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"text": ["private"]}), secret)
    _cache(tmp_path, train=["a\n"], validation=["a\n"])
    readme = next(tmp_path.rglob("README.md"))
    for path in (str(secret), "../../../../secret.parquet"):
        readme.write_text(CARD.replace("wikitext-103-v1/train-*", path))
        error = _prepare(tmp_path)["error"]
        assert "README.md" in error and "secret.parquet" in error


@pytest.mark.slow
def test_a_dataset_without_configurations_is_read_from_its_folder(tmp_path: Path) -> None:
    """A train split in a folder `data`, as in openwebtext, is split by document."""
    texts = [f"document {i}" for i in range(400)]
    snapshot = tmp_path / "hub" / "datasets--Salesforce--wikitext" / "snapshots" / COMMIT
    (snapshot / "data").mkdir(parents=True)
    pq.write_table(pa.table({"text": texts}), snapshot / "data" / "train-00000-of-00001.parquet")
    changes = {"name": None, "document_start": None, "folder": "data", "test_fraction": 0.25}
    counts = _prepare(tmp_path, **changes)["counts"]
    assert list(counts) == ["train", "test"]
    assert sum(documents for _, documents in counts.values()) == 400
    assert 50 < counts["test"][1] < 150


@pytest.mark.parametrize("count", [1, 300])
def test_a_single_split_is_divided_without_loss(count: int) -> None:
    """A single document, as in enwik8, is cut; many documents are assigned whole."""
    texts = [f"{i}: " + "line\n" * 100 for i in range(count)]
    fractions: dict[str, Any] = {
        "validation_fraction": 0.1,
        "test_fraction": 0.1,
        "document_start": None,
    }
    corpus = HubCorpus(**(PARAMETERS | fractions))
    vars(corpus)["_dataset"] = {"train": Dataset.from_dict({"text": texts})}
    parts = {split: list(corpus.documents(split)) for split in corpus.splits()}
    assert list(parts) == ["train", "validation", "test"]
    if count == 1:
        assert "".join(text for split in parts.values() for text in split) == texts[0]
    else:
        assert sorted(text for split in parts.values() for text in split) == sorted(texts)
    sizes = {split: sum(map(len, texts)) for split, texts in parts.items()}
    assert sizes["train"] > 3 * max(sizes["validation"], sizes["test"]) > 0


def test_a_dataset_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"set data.path=OWNER/NAME$"):
        HubCorpus(**(PARAMETERS | {"path": None}))
    with pytest.raises(ConfigError, match=r"data.path=OWNER/NAME and data.revision=COMMIT"):
        HubCorpus(**(PARAMETERS | {"path": None, "revision": None}))


@pytest.mark.parametrize("revision", ["main", COMMIT[:7], COMMIT.upper()])
def test_a_revision_that_can_change_is_an_error(revision: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{revision}' is not a full commit hash"):
        HubCorpus(**(PARAMETERS | {"revision": revision}))


def test_an_invalid_regular_expression_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"data.document_start: '\('"):
        HubCorpus(**(PARAMETERS | {"document_start": "("}))


def test_the_digest_of_a_whole_dataset_is_the_same_as_in_earlier_versions() -> None:
    values = [PARAMETERS[key] for key in ("path", "name", "revision", "column", "document_start")]
    assert HubCorpus(**PARAMETERS).digest() == json_digest(values)


@pytest.mark.parametrize(
    "changes", [{"folder": "data"}, {"validation_fraction": 0.1}, {"test_fraction": 0.1}]
)
def test_folders_and_fractions_change_the_digest(changes: dict[str, Any]) -> None:
    assert HubCorpus(**(PARAMETERS | changes)).digest() != HubCorpus(**PARAMETERS).digest()


@pytest.mark.parametrize("parameter", ["path", "name", "revision", "column", "document_start"])
def test_every_parameter_that_selects_the_text_changes_the_digest(parameter: str) -> None:
    assert (
        HubCorpus(**(PARAMETERS | {parameter: "0" * 40})).digest()
        != HubCorpus(**PARAMETERS).digest()
    )
