"""From a corpus to a cached folder of tokens, named by everything that made it."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.corpus import Corpus, lines
from posenc.data.digest import digest_of
from posenc.data.tokenized import TokenizedData
from posenc.data.tokenizers import Tokenizer, Trainer
from posenc.runs.files import write_json
from posenc.runs.lock import lock

_FORMAT = 1
_REPORT_EVERY = 10_000_000  # tokens

Report = Callable[[str], None]


def fingerprint(corpus: Corpus, tokenizer: Tokenizer | Trainer) -> str:
    """12 hexadecimal digits that change whenever the tokens would."""
    return digest_of([_FORMAT, corpus.digest(), tokenizer.digest()])[:12]


def prepare(
    corpus: Corpus, tokenizer: Tokenizer | Trainer, cache_dir: Path, report: Report
) -> TokenizedData:
    """The tokens of all splits of `corpus`, found in `cache_dir` or made there.

    Made once, whatever the number of processes that ask; a preparation that is killed leaves
    nothing that could be taken for a whole one. `report` is told how it goes. ConfigError for a
    corpus that cannot be read or is empty, before or without anything being kept.
    """
    name = fingerprint(corpus, tokenizer)
    folder = cache_dir / name
    if not folder.is_dir():
        if isinstance(tokenizer, Trainer) and "train" not in corpus.splits():
            raise ConfigError(
                f"tokenizer: it is learned from a train split, but the data '{corpus.name}' has "
                f"only {', '.join(corpus.splits())}; give data.train too, or take tokenizer=byte "
                "or tokenizer=pretrained"
            )
        with _alone(cache_dir, name, report):
            if not folder.is_dir():
                _make(corpus, tokenizer, folder, report)
    return TokenizedData(folder)


@contextmanager
def _alone(cache_dir: Path, name: str, report: Report) -> Iterator[None]:
    """Hold the lock of preparation `name`."""
    path = cache_dir / f".{name}.lock"
    with lock(path, wait=False) as obtained:
        if obtained:
            yield
            return
    report(f"data: another process prepares {name}; waiting for it")
    with lock(path, wait=True):
        yield


def _make(corpus: Corpus, tokenizer: Tokenizer | Trainer, folder: Path, report: Report) -> None:
    """Fill a folder beside `folder` and give it its name when all is there."""
    report(f"data: preparing {corpus.name} as {folder.name}")
    _remove_leftovers(folder.parent, folder.name)
    partial = folder.parent / f".{folder.name}.partial"
    partial.mkdir()
    try:
        if isinstance(tokenizer, Trainer):
            tokenizer = tokenizer.train(corpus.documents("train"))
            report(f"data: learned a tokenizer of {tokenizer.vocab_size:,} tokens")
        _fill(partial, corpus, tokenizer, folder.name, report)
        os.rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def _remove_leftovers(cache_dir: Path, own: str) -> None:
    """Remove what killed preparations have left: nobody alive holds their locks."""
    for partial in cache_dir.glob(".*.partial"):
        name = partial.name.removeprefix(".").removesuffix(".partial")
        with lock(cache_dir / f".{name}.lock", wait=False) as obtained:
            if obtained or name == own:
                shutil.rmtree(partial)


def _fill(folder: Path, corpus: Corpus, tokenizer: Tokenizer, name: str, report: Report) -> None:
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    splits = {}
    for split in corpus.splits():
        counts = _Counts()
        encoded = tokenizer.encode(counts.watch(corpus.documents(split)))
        counts.tokens = _write(folder / f"{split}.bin", encoded, dtype, split, report)
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
        "end_of_text": tokenizer.end_of_text,
    }
    write_json(folder / "meta.json", meta)


@dataclass
class _Counts:
    documents: int = 0
    words: int = 0
    bytes: int = 0
    tokens: int = 0

    def watch(self, documents: Iterable[str]) -> Iterator[str]:
        """The documents, counted as they pass."""
        for document in documents:
            self.documents += 1
            self.words += sum(len(line.split()) for line in lines(document))
            self.bytes += len(document.encode())
            yield document


def _write(
    path: Path, encoded: Iterable[np.ndarray], dtype: np.dtype, split: str, report: Report
) -> int:
    """Write the arrays one behind the other; how many tokens that were."""
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
