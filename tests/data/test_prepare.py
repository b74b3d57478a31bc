import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posenc.config.errors import ConfigError, RunError
from posenc.data import prepared_files
from posenc.data.prepare import fingerprint, prepare
from posenc.data.text import TextCorpus
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers.bpe import BPETrainer
from posenc.data.tokenizers.byte import ByteTokenizer
from posenc.data.tokenizers.word import WordTokenizer, WordTrainer

Make = Callable[..., Any]

# Prepares two documents as bytes and waits for a line of input between them.
SLOW = """
import sys
from pathlib import Path
from posenc.config.values import json_digest
from posenc.data.corpus import Corpus
from posenc.data.prepare import prepare
from posenc.data.tokenizers.byte import ByteTokenizer

class Slow(Corpus):
    name = "slow"
    def splits(self):
        return ("train",)
    def split_digest(self, split):
        return json_digest(["first", "second"])
    def documents(self, split):
        yield "first"
        print("waiting", flush=True)
        sys.stdin.readline()
        yield "second"

data = prepare(Slow(), ByteTokenizer(), Path(sys.argv[1]), lambda line: print(line, flush=True))
print("tokens", len(data.token_array("train").tokens), flush=True)
"""


def _report(line: str) -> None:
    """Discard a progress message, which must be a single line."""
    assert "\n" not in line


def _start(cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLOW, str(cache)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _read_until(process: subprocess.Popen[str], start: str) -> None:
    assert process.stdout is not None
    assert any(line.startswith(start) for line in process.stdout)


def test_splits_are_encoded_and_counted(list_corpus: Make, tmp_path: Path) -> None:
    corpus = list_corpus(test=["é b\n c"], train=["ab", "c  d"])
    data = prepare(corpus, ByteTokenizer(), tmp_path, _report)
    assert (data.name, data.splits, data.vocab_size) == ("lists", ("train", "test"), 257)
    train, test = data.token_array("train"), data.token_array("test")
    assert bytes(min(id, 255) for id in train.tokens) == b"ab\xffc  d\xff"
    assert (train.words, train.bytes, train.documents, train.eos_id) == (3, 6, 2, 256)
    assert (test.words, test.bytes, test.documents) == (3, 7, 1)
    assert len(data.fingerprint) == 12
    assert data.folder == tmp_path / data.fingerprint
    assert data.tokenizer.digest() == ByteTokenizer().digest()
    assert train.tokens.dtype == np.uint16


def test_large_vocabularies_use_uint32_tokens(list_corpus: Make, tmp_path: Path) -> None:
    words = [*(f"w{number}" for number in range(70_000)), "<unk>", "<eos>"]
    data = prepare(list_corpus(test=["w69999"]), WordTokenizer(words), tmp_path, _report)
    assert data.token_array("test").tokens.tolist() == [69_999, 70_001]
    assert data.token_array("test").tokens.dtype == np.uint32


def test_a_tokenizer_is_trained_on_the_train_split(list_corpus: Make, tmp_path: Path) -> None:
    corpus = list_corpus(train=["b b a"], validation=["a c"])
    data = prepare(corpus, WordTrainer(), tmp_path, _report)
    assert data.tokenizer.state() == {"words": ["b", "<eos>", "a", "<unk>"]}
    assert data.token_array("validation").tokens.tolist() == [2, 3, 1]


def test_a_prepared_corpus_is_not_read_again(list_corpus: Make, tmp_path: Path) -> None:
    corpus = list_corpus(train=["a"])
    first = prepare(corpus, WordTrainer(), tmp_path, _report)
    num_reads, written = corpus.num_reads, sorted(tmp_path.rglob("*"))
    reports: list[str] = []
    second = prepare(corpus, WordTrainer(), tmp_path, reports.append)
    assert (corpus.num_reads, sorted(tmp_path.rglob("*")), reports) == (num_reads, written, [])
    assert second.folder == first.folder


def _truncate(folder: Path) -> None:
    os.truncate(folder / "train.bin", 4)


def _change_a_token(folder: Path) -> None:
    tokens = np.fromfile(folder / "train.bin", dtype="<u2")
    tokens[1] += 1
    tokens.tofile(folder / "train.bin")


def _change_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def _remove_the_tokens(folder: Path) -> None:
    (folder / "train.bin").unlink()


def _change_meta(folder: Path, **changes: Any) -> None:
    """Change values, and remove the digest of `meta.json`, which earlier versions did not write."""
    meta = json.loads((folder / "meta.json").read_text())
    del meta["digest"]
    (folder / "meta.json").write_text(json.dumps({**meta, **changes}))


def _truncate_meta(folder: Path) -> None:
    (folder / "meta.json").write_text('{"name": "lists"')


def _write_other_json(folder: Path) -> None:
    (folder / "meta.json").write_text("[1]")


def _nest_deeply(folder: Path) -> None:
    (folder / "meta.json").write_text("[" * 100_000)


def _replace_meta_with_a_folder(folder: Path) -> None:
    (folder / "meta.json").unlink()
    (folder / "meta.json").mkdir()


def _change_a_count(folder: Path) -> None:
    text = (folder / "meta.json").read_text()
    assert '"words": 2' in text
    (folder / "meta.json").write_text(text.replace('"words": 2', '"words": 3'))


def _move_the_end_of_text(folder: Path) -> None:
    _change_meta(folder, end_of_text=257)


def _name_the_end_of_text(folder: Path) -> None:
    _change_meta(folder, end_of_text="<eos>")


def _drop_the_counts(folder: Path) -> None:
    _change_meta(folder, splits={"train": {"tokens": 10}})


def _shrink_the_vocabulary(folder: Path) -> None:
    _change_meta(folder, vocab_size=5, sha256={})


def _make_the_tokenizer_sparse(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    os.truncate(folder / "tokenizer.json", 10**12)


def _make_the_tokens_sparse(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    meta["splits"]["train"]["tokens"] = 10**12
    _change_meta(folder, splits=meta["splits"])
    os.truncate(folder / "train.bin", 2 * 10**12)


def _list_a_file_elsewhere(folder: Path) -> None:
    (folder.parent / "elsewhere").write_text("text")
    _change_meta(folder, sha256={"../elsewhere": "0" * 64})


def _list_files_without_digests(folder: Path) -> None:
    _change_meta(folder, sha256=["train.bin"])


def _make_meta_sparse(folder: Path) -> None:
    os.truncate(folder / "meta.json", 10**12)


def test_the_folder_of_another_corpus_is_not_used(list_corpus: Make, tmp_path: Path) -> None:
    def prepared(text: str) -> TokenizedData:
        return prepare(list_corpus(train=[text]), ByteTokenizer(), tmp_path, _report)

    folder, other = prepared("some text").folder, prepared("other text").folder
    shutil.rmtree(folder)
    other.rename(folder)
    with pytest.raises(RunError, match=f"has the files of the corpus {other.name}"):
        prepared("some text")


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _change_a_token,
        _change_the_tokenizer,
        _remove_the_tokens,
        _truncate_meta,
        _write_other_json,
        _nest_deeply,
        _replace_meta_with_a_folder,
        _change_a_count,
        _move_the_end_of_text,
        _name_the_end_of_text,
        _drop_the_counts,
        _shrink_the_vocabulary,
        _make_the_tokenizer_sparse,
        _make_the_tokens_sparse,
        _list_a_file_elsewhere,
        _list_files_without_digests,
        _make_meta_sparse,
    ],
)
def test_a_corrupt_corpus_is_named_with_the_remedy(
    list_corpus: Make, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    def prepared() -> TokenizedData:
        return prepare(list_corpus(train=["some text"]), ByteTokenizer(), tmp_path, _report)

    folder = prepared().folder
    damage(folder)
    with pytest.raises(RunError, match=r"is corrupt.*delete this folder") as raised:
        prepared()
    assert str(folder) in str(raised.value)
    shutil.rmtree(folder)
    assert prepared().token_array("train").bytes == 9


def test_a_named_pipe_in_place_of_the_verification_record_is_replaced(
    list_corpus: Make, tmp_path: Path
) -> None:
    folder = prepare(list_corpus(train=["some text"]), ByteTokenizer(), tmp_path, _report).folder
    (record,) = folder.glob(".verified-*.json")
    record.unlink()
    os.mkfifo(record)
    TokenizedData(folder)
    assert json.loads(record.read_text())


def test_contents_are_verified_once_and_after_a_change(
    list_corpus: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare(list_corpus(train=["some text"]), ByteTokenizer(), tmp_path, _report).folder
    verified: list[str] = []
    digest = prepared_files.file_sha256
    monkeypatch.setattr(
        prepared_files, "file_sha256", lambda file: (verified.append(file.name), digest(file))[1]
    )
    TokenizedData(folder)
    assert verified == []
    os.utime(folder / "train.bin", ns=(1, 1))
    TokenizedData(folder)
    assert verified == ["tokenizer.json", "tokenizer_config.json", "train.bin"]


def test_a_change_that_keeps_size_and_modification_time_is_detected(
    list_corpus: Make, tmp_path: Path
) -> None:
    folder = prepare(list_corpus(train=["some text"]), ByteTokenizer(), tmp_path, _report).folder
    TokenizedData(folder)
    before = (folder / "train.bin").stat()
    _change_a_token(folder)
    os.utime(folder / "train.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(RunError, match=r"train\.bin have changed"):
        TokenizedData(folder)


def test_a_corpus_without_digests_is_still_readable(list_corpus: Make, tmp_path: Path) -> None:
    data = prepare(list_corpus(train=["some text"]), ByteTokenizer(), tmp_path, _report)
    _change_meta(data.folder, sha256={})
    assert len(TokenizedData(data.folder).token_array("train").tokens) == 10
    _truncate(data.folder)
    with pytest.raises(RunError, match="4 bytes instead of 20"):
        TokenizedData(data.folder)


def test_the_fingerprint_changes_with_corpus_and_tokenizer(list_corpus: Make) -> None:
    fingerprints = {
        fingerprint(corpus, tokenizer)
        for corpus in (
            list_corpus(train=["a"]),
            list_corpus(train=["b"]),
            list_corpus(test=["a"]),
            list_corpus(train=["a"], test=["a"]),
        )
        for tokenizer in (
            ByteTokenizer(),
            BPETrainer(300, 1000),
            BPETrainer(301, 1000),
            BPETrainer(300, 1001),
            WordTrainer(),
            WordTokenizer(["<unk>", "<eos>"]),
        )
    }
    assert len(fingerprints) == 24
    twice = [fingerprint(list_corpus(train=["a"]), BPETrainer(300, 1000)) for _ in range(2)]
    assert twice[0] == twice[1]


def test_an_empty_split_is_an_error_and_leaves_nothing(list_corpus: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the test split of 'lists' is empty"):
        prepare(list_corpus(train=["a"], test=[]), ByteTokenizer(), tmp_path, _report)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_an_unreadable_corpus_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"a\xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 1"):
        prepare(
            TextCorpus(train=str(tmp_path / "bad.txt")), ByteTokenizer(), tmp_path / "c", _report
        )
    assert not (tmp_path / "c").exists()


def test_training_a_tokenizer_needs_a_train_split(list_corpus: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has only test; .* data.train"):
        prepare(list_corpus(test=["a"]), BPETrainer(300, 1000), tmp_path / "c", _report)
    assert not (tmp_path / "c").exists()


def test_an_unknown_split_is_an_error_with_those_available(
    list_corpus: Make, tmp_path: Path
) -> None:
    data = prepare(list_corpus(train=["a"], test=["a"]), ByteTokenizer(), tmp_path, _report)
    with pytest.raises(ConfigError, match=r"'tests'.*\(did you mean test\?\).*train, test"):
        data.token_array("tests")


def test_folders_of_other_programs_are_kept(list_corpus: Make, tmp_path: Path) -> None:
    (tmp_path / ".download.partial").mkdir()
    prepare(list_corpus(train=["a"]), ByteTokenizer(), tmp_path, _report)
    assert (tmp_path / ".download.partial").is_dir()


def test_a_killed_preparation_leaves_nothing_incomplete(list_corpus: Make, tmp_path: Path) -> None:
    with _start(tmp_path) as process:
        _read_until(process, "waiting")
        os.kill(process.pid, signal.SIGKILL)
    assert list(tmp_path.glob(".*.partial"))
    assert list(tmp_path.glob("[!.]*")) == []
    other = prepare(list_corpus(train=["a"]), ByteTokenizer(), tmp_path, _report)
    assert list(tmp_path.glob(".*.partial")) == []
    with _start(tmp_path) as process:
        process.communicate("\n")
    complete = [TokenizedData(path) for path in tmp_path.glob("[!.]*") if path != other.folder]
    assert [len(data.token_array("train").tokens) for data in complete] == [13]


@pytest.mark.slow
def test_concurrent_processes_prepare_a_corpus_once(list_corpus: Make, tmp_path: Path) -> None:
    with _start(tmp_path) as first, _start_waiting(first, tmp_path) as second:
        prepare(list_corpus(train=["a"]), ByteTokenizer(), tmp_path, _report)
        first_output, _ = first.communicate("\n")
        second_output, _ = second.communicate()
    assert first_output.endswith("tokens 13\n")
    assert second_output == "tokens 13\n"


def _start_waiting(first: subprocess.Popen[str], cache: Path) -> subprocess.Popen[str]:
    """Start a process that waits for the first one."""
    _read_until(first, "waiting")
    second = _start(cache)
    _read_until(second, "data: waiting for another process")
    return second
