"""A tokenizer file that someone else has trained."""

from pathlib import Path

from tokenizers import Tokenizer as Model

from posenc.config.errors import ConfigError, did_you_mean
from posenc.data.tokenizers.subword import SubwordTokenizer


def pretrained(path: str | None, end_of_text: str) -> SubwordTokenizer:
    """The tokenizer in `path`, a tokenizer.json of the `tokenizers` library."""
    if path is None:
        raise ConfigError("tokenizer.path is missing; give a tokenizer.json of `tokenizers`")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"tokenizer.path: '{path}' does not exist; give a tokenizer.json")
    try:
        model = Model.from_file(str(file))
    except Exception as error:
        raise ConfigError(
            f"tokenizer.path: '{path}' is not a file of the `tokenizers` library: {error}"
        ) from None
    vocabulary = model.get_vocab()
    if end_of_text not in vocabulary:
        raise ConfigError(
            f"tokenizer.end_of_text: '{end_of_text}' is not one of the {len(vocabulary)} tokens "
            f"of '{path}'{did_you_mean(end_of_text, vocabulary)}; give the one that ends a document"
        )
    return SubwordTokenizer(model, end_of_text)
