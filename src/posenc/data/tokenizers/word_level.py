"""Vocabularies of whole words as tokenizers of the Hugging Face `tokenizers` library."""

from collections.abc import Sequence

from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

WHITESPACE = r"[\s\x1c-\x1f\x85]+"
"""A regular expression for the whitespace at which `str.split` separates words."""


def word_level(words: Sequence[str], unknown: str | None = None) -> HuggingFaceTokenizer:
    """Return a tokenizer that splits at whitespace, with ids in the order of `words`.

    Other words are encoded as `unknown`, or raise an exception if that is None.
    """
    vocabulary = {word: id for id, word in enumerate(words)}
    model = models.WordLevel(vocabulary, **({} if unknown is None else {"unk_token": unknown}))
    tokenizer = HuggingFaceTokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WHITESPACE), "removed")
    return tokenizer


def tokens_by_id(tokenizer: HuggingFaceTokenizer) -> list[str]:
    """Return the vocabulary in the order of its ids."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    return sorted(vocabulary, key=vocabulary.__getitem__)
