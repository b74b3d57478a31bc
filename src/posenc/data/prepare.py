"""Tokenizes a corpus into a cache folder named after a hash of the corpus and the tokenizer."""

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from posenc.config.errors import ConfigError
from posenc.config.values import json_digest
from posenc.data.corpus import Corpus, split_lines
from posenc.data.prepared_files import write_meta
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers import Tokenizer, TokenizerTrainer
from posenc.runs.files import flush_to_disk
from posenc.runs.lock import lock, wait_for_lock

_FORMAT_VERSION = 1
_PROGRESS_INTERVAL = 10_000_000  # tokens

ProgressCallback = Callable[[str], None]


def fingerprint(corpus: Corpus, tokenizer: Tokenizer | TokenizerTrainer) -> str:
    """Return a hash (12 hexadecimal digits) that changes whenever the tokens would change."""
    return json_digest([_FORMAT_VERSION, corpus.digest(), tokenizer.digest()])[:12]


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer | TokenizerTrainer,
    cache_dir: Path,
    on_progress: ProgressCallback,
) -> TokenizedData:
    """Return the tokens of all splits of `corpus`, preparing them in `cache_dir` if necessary.

    Only one of several concurrent processes prepares the corpus. If it is killed, it leaves nothing
    that could be mistaken for a complete folder. `on_progress` receives progress messages. Raises
    ConfigError, leaving no folder, if the corpus cannot be read, a split is empty or there is no
    train split to train the tokenizer on, and RunError if the prepared files are corrupt.
    """
    data_fingerprint = fingerprint(corpus, tokenizer)
    folder = cache_dir / data_fingerprint
    if not folder.is_dir():
        if isinstance(tokenizer, TokenizerTrainer) and "train" not in corpus.splits():
            raise ConfigError(
                "tokenizer: this tokenizer is trained on a train split, but the data"
                f" '{corpus.name}' has only {', '.join(corpus.splits())}; use data with a"
                " train split (with data=text, set data.train), tokenizer=byte or"
                " tokenizer=pretrained"
            )
        message = f"data: waiting for another process that is preparing {data_fingerprint}"
        lock_file = cache_dir / f".{data_fingerprint}.lock"
        with wait_for_lock(lock_file, lambda: on_progress(message)):
            if not folder.is_dir():
                _write_folder(corpus, tokenizer, folder, on_progress)
    return TokenizedData(folder)


def _write_folder(
    corpus: Corpus,
    tokenizer: Tokenizer | TokenizerTrainer,
    folder: Path,
    on_progress: ProgressCallback,
) -> None:
    """Fill a temporary folder and rename it to `folder` once it is complete."""
    on_progress(f"data: preparing {corpus.name} as {folder.name}")
    _remove_partial_folders(folder.parent, folder.name)
    partial = folder.parent / f".{folder.name}.partial"
    partial.mkdir()
    try:
        if isinstance(tokenizer, TokenizerTrainer):
            tokenizer = tokenizer.train(corpus.documents("train"))
            on_progress(f"data: trained a tokenizer, vocabulary size {tokenizer.vocab_size:,}")
        _write_splits(partial, corpus, tokenizer, folder.name, on_progress)
        corpus.check_unchanged()
        os.rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def _remove_partial_folders(cache_dir: Path, current: str) -> None:
    """Remove the partial folders of killed processes: those whose lock is free, and `current`.

    The caller holds the lock for `current`.
    """
    for partial in cache_dir.glob(".*.partial"):
        name = partial.name.removeprefix(".").removesuffix(".partial")
        if partial.is_symlink() or not re.fullmatch("[0-9a-f]{12}", name):
            continue  # from another program
        with lock(cache_dir / f".{name}.lock", timeout=0) as acquired:
            if acquired or name == current:
                shutil.rmtree(partial)


def _write_splits(
    folder: Path,
    corpus: Corpus,
    tokenizer: Tokenizer,
    data_fingerprint: str,
    on_progress: ProgressCallback,
) -> None:
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    splits = {}
    for split in corpus.splits():
        counts: Counter[str] = Counter()
        encoded = tokenizer.encode_documents(_count_documents(corpus.documents(split), counts))
        tokens = _write_tokens(folder / f"{split}.bin", encoded, dtype, split, on_progress)
        if not counts["documents"]:
            raise ConfigError(f"data: the {split} split of '{corpus.name}' is empty")
        documents = f"{counts['documents']:,} document{'s' * (counts['documents'] > 1)}"
        on_progress(f"data: {split}: {tokens:,} tokens, {documents}")
        splits[split] = {**counts, "tokens": tokens}
    tokenizer.save(folder / "tokenizer.json")
    meta = {
        "fingerprint": data_fingerprint,
        "name": corpus.name,
        "splits": splits,
        "dtype": dtype.str,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.eos_id,
    }
    write_meta(folder, meta)


def _count_documents(documents: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    """Yield the documents, and count documents, words and bytes in `counts`."""
    for document in documents:
        counts["documents"] += 1
        counts["words"] += sum(len(line.split()) for line in split_lines(document))
        counts["bytes"] += len(document.encode())
        yield document


def _write_tokens(
    path: Path,
    encoded: Iterable[np.ndarray],
    dtype: np.dtype,
    split: str,
    on_progress: ProgressCallback,
) -> int:
    """Write the arrays to `path` one after another and return the number of tokens."""
    tokens = 0
    with path.open("wb") as file:
        for ids in encoded:
            file.write(ids.astype(dtype).tobytes())
            if tokens // _PROGRESS_INTERVAL < (tokens + len(ids)) // _PROGRESS_INTERVAL:
                on_progress(f"data: {split}: {tokens + len(ids):,} tokens so far")
            tokens += len(ids)
    flush_to_disk(path)
    return tokens
