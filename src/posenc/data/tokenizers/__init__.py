"""Tokenizers, which map text to token ids and back."""

from pathlib import Path

from posenc.data.tokenizers.byte import ByteTokenizer
from posenc.data.tokenizers.subword import SubwordTokenizer
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.data.tokenizers.tokenizer import Tokenizer, TokenizerTrainer
from posenc.data.tokenizers.word import WordTokenizer
from posenc.runs.files import read_json

__all__ = ["Tokenizer", "TokenizerTrainer", "load_tokenizer"]

_CLASSES: dict[str, type[Tokenizer]] = {
    cls.kind: cls for cls in (ByteTokenizer, SubwordTokenizer, SymbolTokenizer, WordTokenizer)
}


def load_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer that was saved to `path`."""
    saved = read_json(path)
    return _CLASSES[saved["kind"]].load(saved["state"])
