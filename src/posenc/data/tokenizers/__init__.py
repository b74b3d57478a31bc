"""Tokenizers, which map text to token ids and back."""

from pathlib import Path

from posenc.config.errors import describe_error
from posenc.data.tokenizers.byte import ByteTokenizer
from posenc.data.tokenizers.subword import SubwordTokenizer
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.data.tokenizers.tokenizer import Tokenizer, TokenizerTrainer
from posenc.data.tokenizers.word import WordTokenizer
from posenc.runs.files import corrupt_file, read_mapping

__all__ = ["Tokenizer", "TokenizerTrainer", "load_tokenizer"]

_CLASSES: dict[str, type[Tokenizer]] = {
    cls.kind: cls for cls in (ByteTokenizer, SubwordTokenizer, SymbolTokenizer, WordTokenizer)
}


def load_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer that was saved to `path`. Raises RunError if the file is corrupt."""
    saved = read_mapping(path, {"kind": str, "state": dict})
    try:
        return _CLASSES[saved["kind"]].load(saved["state"])
    except Exception as error:  # the `tokenizers` library raises no narrower type
        raise corrupt_file(path, describe_error(error)) from None
