"""Tokenizers, which map text to token ids and back."""

import json
from pathlib import Path

from posenc.config.errors import ConfigError, RunError, describe_error
from posenc.data.tokenizers.byte import ByteTokenizer
from posenc.data.tokenizers.huggingface import load_library_tokenizer
from posenc.data.tokenizers.subword import SubwordTokenizer
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.data.tokenizers.tokenizer import (
    CONFIG_NAME,
    Tokenizer,
    TokenizerTrainer,
    tokenizer_digest,
)
from posenc.data.tokenizers.word import WordTokenizer
from posenc.runs.files import corrupt_file_error, read_mapping

__all__ = ["Tokenizer", "TokenizerTrainer", "load_tokenizer"]

_CLASSES: dict[str, type[Tokenizer]] = {
    cls.kind: cls for cls in (ByteTokenizer, SubwordTokenizer, SymbolTokenizer, WordTokenizer)
}


def load_tokenizer(path: Path, digest: str | None = None) -> Tokenizer:
    """Return the tokenizer that was saved to `path`.

    Files written by earlier versions contain the kind and the `state()` of the tokenizer. Raises
    RunError if a file is corrupt, or if the `tokenizer_digest` of the files is not `digest`; None
    skips this check.
    """
    if digest not in (None, tokenizer_digest(path)):
        raise RunError(
            f"{path} and {CONFIG_NAME} are not the tokenizer of this run (they were edited or are"
            f" from another run); rerun the training command to write them again"
        )
    saved = read_mapping(path, {})
    try:
        if "state" in saved:
            return _CLASSES[saved["kind"]].from_state(saved["state"])
        config = read_mapping(path.with_name(CONFIG_NAME), {"posenc_kind": str})
        tokenizer = load_library_tokenizer(json.dumps(saved))
        return _CLASSES[config["posenc_kind"]].from_huggingface(tokenizer, config["eos_token"])
    except RunError:
        raise
    except ConfigError as error:
        raise corrupt_file_error(path, error) from None
    except Exception as error:  # the contents can be of any type
        raise corrupt_file_error(path, describe_error(error)) from None
