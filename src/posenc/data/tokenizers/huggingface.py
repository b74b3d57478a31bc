"""Loads tokenizers of the Hugging Face `tokenizers` library from untrusted files."""

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tokenizers import Tokenizer as HuggingFaceTokenizer

from posenc.config.errors import ConfigError, describe_error

MAX_GROWTH = 100
"""The largest factor by which all steps of a normalizer or decoder together may lengthen a text.

The parts of published tokenizers lengthen a text less than tenfold. A malicious file needs only a
few dozen steps that each double the text to exhaust memory.
"""
PROBE = f"def f(x):\n    return internationalization_of_42_names(x) + {24 * 'a'}{24 * ' '}"
MAX_PROBE_SECONDS = 0.2
"""The CPU time within which PROBE must be encoded; published tokenizers take milliseconds."""
STEP_GROWTH = {"ByteLevel": 4, "Precompiled": 10}
"""Type of step -> the largest factor by which it lengthens a text each time it is applied.

Replace is handled separately. Unicode normalization is not listed, because applying it again
changes nothing.
"""


def load_library_tokenizer(text: str) -> HuggingFaceTokenizer:
    """Build a tokenizer from the contents of a tokenizer.json.

    Raises ConfigError if the library rejects it, if it has dropout, which makes tokenization
    random, if a short text could become many tokens, or if it takes too long to encode a short
    text, because of a regular expression that backtracks.
    """
    with library_errors("the tokenizers library cannot read it"):
        tokenizer = HuggingFaceTokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()  # a file could set a length that exhausts memory
    serialized = json.loads(tokenizer.to_str())
    if serialized["model"].get("dropout"):
        raise ConfigError("its model has dropout, which makes tokenization random; set it to null")
    _check_growth(serialized)
    start = time.thread_time()
    with suppress(ConfigError), library_errors(""):  # not every tokenizer can encode this text
        tokenizer.encode(PROBE, add_special_tokens=False)
    if (seconds := time.thread_time() - start) > MAX_PROBE_SECONDS:
        raise ConfigError(
            f"it took {seconds:.1f} s to encode {len(PROBE)} characters; simplify its regular"
            f" expressions"
        )
    return tokenizer


@contextmanager
def library_errors(problem: str) -> Iterator[None]:
    """Turn errors of the tokenizers library into ConfigErrors that start with `problem`.

    The library raises plain Exceptions and, if its Rust code panics, PanicException, which is not a
    subclass of Exception. What a panic writes to stderr is discarded.
    """
    try:
        with _without_panic_messages():
            yield
    except BaseException as error:
        if isinstance(error, Exception) or _is_panic(error):
            raise ConfigError(f"{problem}: {describe_error(error)}") from None
        raise


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"


def _check_growth(serialized: dict[str, Any]) -> None:
    """Raise ConfigError if the steps of a tokenizer can lengthen a text more than MAX_GROWTH-fold.

    `serialized` is the content of a tokenizer.json.
    """
    for part in ("normalizer", "decoder"):
        growth = math.prod(map(_growth, _steps(serialized.get(part))))
        if growth > MAX_GROWTH:
            raise ConfigError(
                f"the steps of its {part} can make a text {growth:.3g} times as long; at most"
                f" {MAX_GROWTH} is allowed, because longer texts could exhaust memory"
            )


def _steps(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer or decoder, including those inside a Sequence."""
    if isinstance(node, dict) and node.get("type") == "Sequence":
        for child in [*node.get("normalizers", []), *node.get("decoders", [])]:
            yield from _steps(child)
    elif isinstance(node, dict):
        yield node


def _growth(step: dict[str, Any]) -> float:
    """Return a bound on the factor by which a step lengthens a text."""
    if step.get("type") != "Replace":
        return STEP_GROWTH.get(step.get("type", ""), 1)
    content, pattern = step["content"], step["pattern"].get("String")
    if pattern:
        return max(1, len(content) / len(pattern))
    return 1 + len(content)  # a regex can match the empty string everywhere


@contextmanager
def _without_panic_messages() -> Iterator[None]:
    """Buffer the output to stderr (file descriptor 2), and discard it after a panic."""
    try:
        stderr = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    panicked = False
    with tempfile.TemporaryFile() as buffer:
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        except BaseException as error:
            panicked = _is_panic(error)
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            buffer.seek(0)
            if not panicked and (text := buffer.read()):  # from another thread
                os.write(2, text)
