import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import models, pre_tokenizers
from transformers import AutoTokenizer

from posenc.config.errors import ConfigError, RunError
from posenc.data.tokenizers import Tokenizer, load_tokenizer, subword
from posenc.data.tokenizers.bpe import BPETrainer
from posenc.data.tokenizers.byte import ByteTokenizer
from posenc.data.tokenizers.huggingface import library_errors, load_library_tokenizer
from posenc.data.tokenizers.subword import pretrained
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.data.tokenizers.word import WordTokenizer, WordTrainer

SENTENCE = "the cat sat on the mat, didn't it? Über 123 cats\n\n  sat.\n"
BPE = BPETrainer(vocab_size=280, train_bytes=10_000).train([SENTENCE * 20])
TRICKY = "ab 1.'\n\t_é字\x1c\xa0"
TEXTS = st.lists(st.text(alphabet=st.sampled_from(TRICKY) | st.characters(codec="utf-8")))


def _ids(tokenizer: Tokenizer, *documents: str) -> list[int]:
    return np.concatenate(list(tokenizer.encode_documents(documents))).tolist()


@settings(deadline=None)
@given(TEXTS)
def test_byte_ids_are_the_bytes_of_utf8(documents: list[str]) -> None:
    expected = [id for document in documents for id in [*document.encode(), 256]]
    ids = [int(id) for part in ByteTokenizer().encode_documents(documents) for id in part]
    assert ids == expected
    assert ByteTokenizer().decode(ids) == "".join(documents)


@settings(deadline=None)
@given(TEXTS)
def test_bpe_decodes_to_the_encoded_text(documents: list[str]) -> None:
    ids = [int(id) for part in BPE.encode_documents(documents) for id in part]
    assert BPE.decode(ids) == "".join(documents)
    assert ids.count(BPE.eos_id) == len(documents)


@settings(deadline=None)
@given(st.lists(st.text(alphabet=TRICKY, max_size=60)))
def test_encoding_in_pieces_gives_the_same_tokens(documents: list[str]) -> None:
    whole = HuggingFaceTokenizer.from_str(json.dumps(BPE.state()["model"]))
    expected = [id for text in documents for id in [*whole.encode(text).ids, BPE.eos_id]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subword, "_PIECE_CHARACTERS", 3)
        patch.setattr(subword, "_BATCH_CHARACTERS", 7)
        assert [int(id) for part in BPE.encode_documents(documents) for id in part] == expected


def test_a_spelled_out_special_token_is_text() -> None:
    ids = _ids(BPE, "a<|endoftext|>b")
    assert ids.count(BPE.eos_id) == 1
    assert BPE.decode(ids) == "a<|endoftext|>b"


def test_bpe_has_the_requested_size_and_every_byte() -> None:
    assert BPE.vocab_size == 280
    characters = set(pre_tokenizers.ByteLevel.alphabet())
    assert characters < set(BPE.state()["model"]["model"]["vocab"])


def test_bpe_learns_the_most_frequent_pair_first() -> None:
    learned = BPETrainer(vocab_size=258, train_bytes=100).train(["abab abab ba", "cdcdcd"])
    assert learned.state()["model"]["model"]["merges"] == [["a", "b"]]


def test_bpe_learns_from_the_first_bytes_only() -> None:
    short = BPETrainer(vocab_size=300, train_bytes=3001)
    documents = [SENTENCE * 20, "é" * 1000, "zzzz " * 100]
    size = len(documents[0].encode())
    seen = [documents[0], "é" * ((3001 - size) // 2)]
    assert short.train(documents).digest() == BPETrainer(300, 10**6).train(seen).digest()
    assert short.train(documents).digest() != BPETrainer(300, 10**6).train(documents).digest()


@pytest.mark.parametrize("threads", [{"RAYON_NUM_THREADS": "3"}, {"TOKENIZERS_PARALLELISM": "0"}])
def test_the_number_of_threads_does_not_change_the_tokens(threads: dict[str, str]) -> None:
    script = (
        "import sys, numpy; from posenc.data.tokenizers.bpe import BPETrainer;"
        "texts = [' '.join(str(n * n) for n in range(3000)), sys.argv[1] * 3000];"
        "t = BPETrainer(400, 10**6).train(texts);"
        "print(t.digest(), numpy.concatenate(list(t.encode_documents(texts))).tolist())"
    )
    texts = [" ".join(str(n * n) for n in range(3000)), SENTENCE * 3000]
    tokenizer = BPETrainer(400, 10**6).train(texts)
    command = [sys.executable, "-c", script, SENTENCE]
    other = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    expected = [tokenizer.digest(), f"{_ids(tokenizer, *texts)}\n"]
    assert other.stdout.split(" ", 1) == expected


@pytest.mark.parametrize(
    ("vocab_size", "train_bytes", "message"),
    [
        (256, 10, "tokenizer.vocab_size=256 must be at least 257"),
        (300, 0, "tokenizer.train_bytes=0"),
    ],
)
def test_impossible_bpe_parameters_are_an_error(
    vocab_size: int, train_bytes: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        BPETrainer(vocab_size, train_bytes)


def test_words_are_numbered_by_frequency_then_alphabet() -> None:
    tokenizer = WordTrainer().train(["b a b\nc b a", "<unk> c\n"])
    assert tokenizer.state() == {"words": ["<eos>", "b", "a", "c", "<unk>"]}
    assert _ids(tokenizer, "a  b\t\n\n x <unk>", "c") == [2, 1, 0, 0, 4, 4, 0, 3, 0]
    assert tokenizer.decode([2, 1, 0, 0, 4, 3, 0]) == "a b\n\n<unk> c\n"


def test_the_unknown_word_is_always_in_the_vocabulary() -> None:
    assert WordTrainer().train(["a a a"]).state() == {"words": ["a", "<eos>", "<unk>"]}


@pytest.mark.parametrize(("split", "tokens"), [("validation", 217_646), ("test", 245_569)])
def test_wikitext_has_its_published_number_of_tokens(
    wikitext: Path, split: str, tokens: int
) -> None:
    text = (wikitext / f"{split}.txt").read_text()
    tokenizer = WordTrainer().train([text])
    ids = np.concatenate(list(tokenizer.encode_documents([text])))
    assert len(ids) == tokens
    assert np.all(np.diff(np.bincount(ids)) <= 0)


@pytest.mark.parametrize(
    "tokenizer",
    [ByteTokenizer(), BPE, WordTokenizer(["a", "<eos>", "<unk>"])],
    ids=lambda tokenizer: tokenizer.kind,
)
def test_a_tokenizer_is_the_same_after_saving_and_loading(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(loaded) is type(tokenizer)
    assert loaded.digest() == tokenizer.digest()
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.eos_id == tokenizer.eos_id
    assert _ids(loaded, SENTENCE, "a a") == _ids(tokenizer, SENTENCE, "a a")


@pytest.mark.parametrize("replaced", ["tokenizer.json", "tokenizer_config.json"])
def test_the_files_of_another_tokenizer_are_an_error(replaced: str, tmp_path: Path) -> None:
    own, other = WordTokenizer(["a", "b", "<eos>", "<unk>"]), ByteTokenizer()
    file = tmp_path / "own" / "tokenizer.json"
    for tokenizer, folder in ((own, "own"), (other, "other")):
        tokenizer.save(tmp_path / folder / "tokenizer.json")
    assert load_tokenizer(file, own.file_digest).encode("b") == [1]
    shutil.copy(tmp_path / "other" / replaced, file.with_name(replaced))
    with pytest.raises(RunError, match="are not the tokenizer of this run"):
        load_tokenizer(file, own.file_digest)


BYTE_LEVEL = {"type": "ByteLevel"}
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}

SAVED = {
    "byte": ByteTokenizer(),
    "subword": BPE,
    "word": WordTrainer().train(["a b\nc d é"]),
    "symbols": SymbolTokenizer(["<bos>", "3", "x=", "-2"]),
}
WHITESPACE = "".join(c for c in map(chr, range(0x110000)) if c.isspace())
EXAMPLES = ["", "a", f"a b\n\nc{'a'.join(WHITESPACE)} zz\u200b", SENTENCE, "line\n"]


@pytest.mark.parametrize("kind", SAVED)
def test_the_tokenizers_library_reads_a_saved_file(kind: str, tmp_path: Path) -> None:
    tokenizer = SAVED[kind]
    tokenizer.save(tmp_path / "tokenizer.json")
    library = HuggingFaceTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ["3 x=\n-2", "3"] if kind == "symbols" else EXAMPLES:
        ids = library.encode(text, add_special_tokens=False).ids
        assert ids == tokenizer.encode(text), text
    assert library.get_vocab_size() == tokenizer.vocab_size
    assert library.token_to_id(tokenizer.eos_token) == tokenizer.eos_id


@pytest.mark.parametrize("kind", SAVED)
def test_transformers_knows_the_end_of_text_token(kind: str, tmp_path: Path) -> None:
    SAVED[kind].save(tmp_path / "tokenizer.json")
    loaded: Any = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.eos_token_id == SAVED[kind].eos_id


@pytest.mark.parametrize("kind", SAVED)
def test_files_of_earlier_versions_load_with_the_same_digest(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    state = SAVED[kind].state()
    file.write_text(json.dumps({"kind": kind, "state": state}))
    assert load_tokenizer(file).digest() == SAVED[kind].digest()


@pytest.mark.parametrize("text", ['{"model": 1}', "[]", "7", '{"kind": "x", "state": {}}'])
def test_a_corrupt_file_is_named(text: str, tmp_path: Path) -> None:
    ByteTokenizer().save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(RunError, match=r"tokenizer\.json is corrupt"):
        load_tokenizer(tmp_path / "tokenizer.json")


def library_file(folder: Path, **changes: Any) -> Path:
    """Save a `tokenizers` tokenizer with three words; `changes` replace fields of its file."""
    model = {"type": "WordLevel", "vocab": {"a": 0, "?": 1, "</s>": 2}, "unk_token": "?"}
    config = {"posenc_kind": "subword", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    contents = {"version": "1.0", "added_tokens": [], "model": model, **changes}
    (folder / "tokenizer.json").write_text(json.dumps(contents))
    return folder / "tokenizer.json"


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def nested(kind: str, step: dict[str, Any], levels: int) -> dict[str, Any]:
    """Nested sequences of steps, each of which applies the inner one twice."""
    for _ in range(levels):
        step = {"type": "Sequence", kind: [step, step]}
    return step


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": nested("normalizers", replace("a", "aa"), 6)}, "its normalizer can make"),
        ({"normalizer": nested("normalizers", replace("(?=a)", "a", "Regex"), 3)}, "256 times"),
        ({"normalizer": nested("normalizers", BYTE_LEVEL, 2)}, "256 times"),
        (
            {"decoder": nested("decoders", replace("a", "aa"), 3)},
            "its decoder can make .* 256 times",
        ),
        ({"normalizer": replace("a", "a" * 101)}, "101 times .* at most 100"),
        ({"normalizer": PRECOMPILED}, "library cannot read it: PanicException"),
        (
            {"model": {"type": "WordLevel", "vocab": {"</s>": 2**32 - 1}, "unk_token": "?"}},
            "1,048,5",
        ),
    ],
)
def test_a_library_file_that_would_exhaust_memory_or_crash_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    file = library_file(tmp_path, **changes)
    with pytest.raises(RunError, match=rf"tokenizer\.json is corrupt .*{message}"):
        load_tokenizer(file)
    with pytest.raises(ConfigError, match=message):
        pretrained(str(file), "</s>")
    assert "panicked" not in capfd.readouterr().err


def test_the_padding_of_a_library_file_is_ignored(tmp_path: Path) -> None:
    fixed = {"strategy": {"Fixed": 4_000_000_000}, "direction": "Right", "pad_id": 0}
    padding = {**fixed, "pad_to_multiple_of": None, "pad_type_id": 0, "pad_token": "[PAD]"}
    without = pretrained(str(library_file(tmp_path)), "</s>").encode("a b")
    assert pretrained(str(library_file(tmp_path, padding=padding)), "</s>").encode("a b") == without


def test_common_steps_of_published_tokenizers_are_accepted(tmp_path: Path) -> None:
    steps = [
        replace(" {2,}", " ", "Regex"),
        replace("``", '"'),
        replace(" ", "_"),
        {"type": "NFKC"},
    ]
    normalizer = {"type": "Sequence", "normalizers": steps}
    tokenizer = load_tokenizer(library_file(tmp_path, normalizer=normalizer))
    assert tokenizer.encode("a") == [0]


def test_a_text_on_which_the_library_panics_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pre_tokenizer = {"type": "FixedLength", "length": 0}
    tokenizer = load_tokenizer(library_file(tmp_path, pre_tokenizer=pre_tokenizer))
    with pytest.raises(ConfigError, match="cannot encode this text: PanicException"):
        tokenizer.encode("a a")
    assert capfd.readouterr().err == ""


def test_other_messages_on_stderr_are_kept_while_the_library_is_called(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with library_errors("the tokenizer cannot encode this text"):
        os.write(2, b"from another thread")
    assert capfd.readouterr().err == "from another thread"


def test_encode_appends_no_end_of_text_token() -> None:
    assert ByteTokenizer().encode("ab") == [97, 98]
    words = WordTokenizer(["a", "<eos>", "<unk>"])
    assert [words.encode(text) for text in ("", "a", "a\n", "a\nb")] == [[], [0], [0, 1], [0, 1, 2]]


@pytest.fixture
def words_file(tmp_path: Path) -> Path:
    """A tokenizer file with gaps between its ids, truncation and a prefix space."""
    tokenizer = HuggingFaceTokenizer(
        models.WordLevel({"▁a": 0, "▁b": 1, "</s>": 9, "?": 3}, unk_token="?")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


def test_a_pretrained_file_encodes_whole_documents(words_file: Path) -> None:
    tokenizer = pretrained(str(words_file), "</s>")
    assert (tokenizer.vocab_size, tokenizer.eos_id) == (10, 9)
    assert _ids(tokenizer, "a b a b", "b") == [0, 1, 0, 1, 9, 1, 9]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subword, "_PIECE_CHARACTERS", 1)
        assert _ids(tokenizer, "a b a b") == [0, 1, 0, 1, 9]


def test_an_invalid_pretrained_tokenizer_is_an_error(words_file: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer.path is missing"):
        pretrained(None, "</s>")
    with pytest.raises(ConfigError, match=r"is not a regular file; set it to a tokenizer.json"):
        pretrained(str(tmp_path), "</s>")
    with pytest.raises(ConfigError, match=r"'nowhere.json' does not exist"):
        pretrained("nowhere.json", "</s>")
    with pytest.raises(ConfigError, match=r"other.json' is not a tokenizer.json"):
        pretrained(str(tmp_path / "other.json"), "</s>")
    with pytest.raises(ConfigError, match=r"eos_token: '<s>' is not one of the 4 tokens.*</s>"):
        pretrained(str(words_file), "<s>")


def test_a_slow_regular_expression_is_an_error(tmp_path: Path) -> None:
    pattern = {"Regex": r"(?:.|\w){20}(?!)"}  # tries two million alternatives at each character
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    with pytest.raises(RunError, match="simplify its regular expressions"):
        load_tokenizer(library_file(tmp_path, pre_tokenizer=split))


def test_a_tokenizer_whose_tokens_are_random_is_rejected() -> None:
    text = HuggingFaceTokenizer(models.BPE(dropout=0.3)).to_str()
    with pytest.raises(ConfigError, match="dropout"):
        load_library_tokenizer(text)
