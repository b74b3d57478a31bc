"""Tokenizes a corpus into a cached folder named by everything that determines its tokens."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.corpus import Corpus, digest_of, lines
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers import Tokenizer, TokenizerTrainer
from posenc.runs.files import write_json
from posenc.runs.lock import lock

_FORMAT = 1
_REPORT_EVERY = 10_000_000  # tokens

Report = Callable[[str], None]


def fingerprint(corpus: Corpus, tokenizer: Tokenizer | TokenizerTrainer) -> str:
    """Return 12 hexadecimal digits that change whenever the tokens would change."""
    return digest_of([_FORMAT, corpus.digest(), tokenizer.digest()])[:12]


def prepare(
    corpus: Corpus, tokenizer: Tokenizer | TokenizerTrainer, cache_dir: Path, report: Report
) -> TokenizedData:
    """Return the tokens of all splits of `corpus`, from `cache_dir` or written there now.

    Concurrent processes prepare a corpus only once. A preparation that is killed leaves nothing
    that could be mistaken for a complete one. `report` receives progress messages. Raises
    ConfigError for a corpus that cannot be read or is empty, in which case nothing is kept.
    """
    name = fingerprint(corpus, tokenizer)
    folder = cache_dir / name
    if not folder.is_dir():
        if isinstance(tokenizer, TokenizerTrainer) and "train" not in corpus.splits():
            raise ConfigError(
                f"tokenizer: it is learned from a train split, but the data '{corpus.name}' has "
                f"only {', '.join(corpus.splits())}; set data.train, or use tokenizer=byte or "
                "tokenizer=pretrained"
            )
        with _preparation_lock(cache_dir, name, report):
            if not folder.is_dir():
                _write_folder(corpus, tokenizer, folder, report)
    return TokenizedData(folder)


@contextmanager
def _preparation_lock(cache_dir: Path, name: str, report: Report) -> Iterator[None]:
    path = cache_dir / f".{name}.lock"
    with lock(path, timeout=0) as acquired:
        if acquired:
            yield
            return
    report(f"data: waiting for another process that is preparing {name}")
    with lock(path):
        yield


def _write_folder(
    corpus: Corpus, tokenizer: Tokenizer | TokenizerTrainer, folder: Path, report: Report
) -> None:
    """Fill a temporary folder and rename it to `folder` once it is complete."""
    report(f"data: preparing {corpus.name} as {folder.name}")
    _remove_partial_folders(folder.parent, folder.name)
    partial = folder.parent / f".{folder.name}.partial"
    partial.mkdir()
    try:
        if isinstance(tokenizer, TokenizerTrainer):
            tokenizer = tokenizer.train(corpus.documents("train"))
            report(f"data: learned a tokenizer of {tokenizer.vocab_size:,} tokens")
        _write_splits(partial, corpus, tokenizer, folder.name, report)
        os.rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def _remove_partial_folders(cache_dir: Path, current: str) -> None:
    """Remove the folders of killed preparations: those whose locks are free, and `current`."""
    for partial in cache_dir.glob(".*.partial"):
        name = partial.name.removeprefix(".").removesuffix(".partial")
        with lock(cache_dir / f".{name}.lock", timeout=0) as acquired:
            if acquired or name == current:
                shutil.rmtree(partial)


def _write_splits(
    folder: Path, corpus: Corpus, tokenizer: Tokenizer, name: str, report: Report
) -> None:
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    splits = {}
    for split in corpus.splits():
        counts = _Counts()
        encoded = tokenizer.encode(counts.count(corpus.documents(split)))
        counts.tokens = _write_tokens(folder / f"{split}.bin", encoded, dtype, split, report)
        if counts.documents == 0:
            raise ConfigError(f"data: the {split} split of '{corpus.name}' has no text in it")
        report(f"data: {split}: {counts.tokens:,} tokens, {counts.documents:,} documents")
        splits[split] = asdict(counts)
    tokenizer.save(folder / "tokenizer.json")
    meta = {
        "fingerprint": name,
        "name": corpus.name,
        "splits": splits,
        "dtype": dtype.str,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.eos_id,
    }
    write_json(folder / "meta.json", meta)


@dataclass
class _Counts:
    documents: int = 0
    words: int = 0
    bytes: int = 0
    tokens: int = 0

    def count(self, documents: Iterable[str]) -> Iterator[str]:
        """Yield the documents and count them."""
        for document in documents:
            self.documents += 1
            self.words += sum(len(line.split()) for line in lines(document))
            self.bytes += len(document.encode())
            yield document


def _write_tokens(
    path: Path, encoded: Iterable[np.ndarray], dtype: np.dtype, split: str, report: Report
) -> int:
    """Write the arrays one after another and return the number of tokens."""
    tokens = 0
    with path.open("wb") as file:
        for ids in encoded:
            file.write(ids.astype(dtype).tobytes())
            if tokens // _REPORT_EVERY < (tokens + len(ids)) // _REPORT_EVERY:
                report(f"data: {split}: {tokens + len(ids):,} tokens so far")
            tokens += len(ids)
        file.flush()
        os.fsync(file.fileno())
    return tokens
