"""Reads and writes saved configurations as OmegaConf does, but ten times as fast."""

import pickle
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from posenc.config.values import MAX_NESTING

FLOAT_TAG = "tag:yaml.org,2002:float"
NUMBER_TAGS = (FLOAT_TAG, "tag:yaml.org,2002:int")
MAX_NUMBER_LENGTH = 100
"""The maximum length in characters of a number."""
FLOAT = re.compile(
    r"""(?:
     [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
"""Numbers that OmegaConf reads as floats; in YAML 1.1, `1e5` and `1.0e5` would be strings."""
STREAM_EVENTS = (
    yaml.StreamStartEvent,
    yaml.StreamEndEvent,
    yaml.DocumentStartEvent,
    yaml.DocumentEndEvent,
)
"""Events that do not start a value."""
MAX_CACHED_LENGTH = 100
"""The maximum length in characters of the scalars that are cached."""
SECTION = re.compile(r"^[A-Za-z_].*\n(?:(?: |- ).*\n)*", re.MULTILINE)
"""A top-level key and its value; lines after the first are indented or are list items."""
TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"


def load_yaml(text: str) -> Any:
    """Return the contents of a saved configuration. Raises yaml.YAMLError if it is not valid.

    Aliases, tags such as `!!set`, duplicate keys, and keys that are null or not scalars are not
    valid, because saved configurations have none.
    """
    sections = SECTION.findall(text)
    if "".join(sections) == text:
        # On an error, _load parses the whole text: a value may span sections, or be invalid.
        with suppress(yaml.YAMLError):
            values = [pickle.loads(_pickled_section(section)) for section in sections]
            keys = {key for value in values for key in value}
            if len(keys) == len(sections):
                return {key: item for value in values for key, item in value.items()}
    return _load(text)


@lru_cache(maxsize=1024)
def _pickled_section(text: str) -> bytes:
    """Return a parsed section, cached because most runs of a sweep have the same sections.

    It is pickled, so that each caller can unpickle its own copy.
    """
    value = _load(text)
    if not isinstance(value, dict) or len(value) != 1:
        raise ConstructorError(None, None, "is not a section")
    return pickle.dumps(value)


def _load(text: str) -> Any:
    events = limited_events(text)
    documents = [_build(event, events) for event in events if not isinstance(event, STREAM_EVENTS)]
    if len(documents) > 1:
        raise ConstructorError(None, None, "contains several documents")
    return documents[0] if documents else None


def _build(event: yaml.Event, events: Iterator[yaml.Event]) -> Any:
    """Return the value that starts with `event`; its other events are taken from `events`."""
    if isinstance(event, yaml.AliasEvent):
        raise ConstructorError(None, None, "contains an alias, which posenc never writes")
    if (tag := getattr(event, "tag", None)) is not None:
        raise ConstructorError(None, None, f"contains the tag {tag}")
    if isinstance(event, yaml.ScalarEvent):
        is_short = len(event.value) <= MAX_CACHED_LENGTH
        return (_scalar if is_short else _scalar.__wrapped__)(event.value, event.implicit)
    if isinstance(event, yaml.SequenceStartEvent):
        return [_build(item, events) for item in _until(yaml.SequenceEndEvent, events)]
    mapping: dict[Any, Any] = {}
    seen_keys: set[str] = set()
    for key_event in _until(yaml.MappingEndEvent, events):
        key = _build(key_event, events)
        if key is None or not isinstance(key_event, yaml.ScalarEvent):
            raise ConstructorError(None, None, "a key is null or not a scalar", event.start_mark)
        if key_event.value in seen_keys:
            raise ConstructorError(None, None, f"duplicate key {key_event.value}", event.start_mark)
        seen_keys.add(key_event.value)
        mapping[key] = _build(next(events), events)
    return mapping


def _until(end: type[yaml.Event], events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    """Yield the first event of each item of a collection."""
    while not isinstance(event := next(events), end):
        yield event


@lru_cache(maxsize=4096)
def _scalar(text: str, implicit: tuple[bool, bool]) -> Any:
    """Return the value of a scalar, cached because the runs of a sweep share nearly all scalars."""
    loader = _Loader("")
    return loader.construct_object(yaml.ScalarNode(_tag(text, implicit), text))


def _tag(text: str, implicit: tuple[bool, bool]) -> str:
    return _Loader("").resolve(yaml.ScalarNode, text, implicit)


def _is_long_number(event: yaml.ScalarEvent) -> bool:
    is_long = len(event.value) > MAX_NUMBER_LENGTH
    return is_long and _tag(event.value, event.implicit) in NUMBER_TAGS


def limited_events(text: str) -> Iterator[yaml.Event]:
    """Yield the parser's events for untrusted YAML.

    Raises yaml.YAMLError if the text is not valid, has more than MAX_NESTING nested levels (loading
    it would exhaust the stack), or has a number with more than MAX_NUMBER_LENGTH characters (YAML's
    numbers in base 60 are slow to parse).
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.ScalarEvent) and _is_long_number(event):
            error = f"a number with {len(event.value):,} characters"
            raise ConstructorError(None, None, error, event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING:
            raise ConstructorError(None, None, f"more than {MAX_NESTING} nested levels")
        yield event


def dump_yaml(values: Any) -> str:
    """Return plain values as YAML, with keys in their original order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Loader(yaml.CSafeLoader):
    """Reads `1e-4` as a number and `2026-01-01` as a string."""


class _Dumper(yaml.CSafeDumper):
    """Quotes strings that `_Loader` would read as numbers, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_string(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if FLOAT.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Loader.add_implicit_resolver(FLOAT_TAG, FLOAT, list("-+0123456789."))
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP_TAG]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
_Dumper.add_representer(str, _represent_string)
