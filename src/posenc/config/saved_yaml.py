"""Reads and writes saved configurations ten times as fast as OmegaConf, in its YAML dialect."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from posenc.config.values import MAX_NESTING

FLOAT_TAG = "tag:yaml.org,2002:float"
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
"""Numbers that OmegaConf reads as floats; YAML 1.1 needs a decimal point and a sign: `1.0e+5`."""
TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"


def load_yaml(text: str) -> Any:
    """Return the contents of a saved configuration. Raises yaml.YAMLError if it is not valid.

    Saved configurations have no aliases and no tags such as `!!set`; their keys are strings and
    numbers, and no mapping has the same key twice.
    """
    for event in events_within_limit(text):
        if isinstance(event, yaml.AliasEvent):
            raise ConstructorError(None, None, "contains an alias, which posenc never writes")
        if getattr(event, "tag", None) is not None:
            raise ConstructorError(None, None, f"contains the tag {event.tag}")
    return yaml.load(text, Loader=_Loader)


def events_within_limit(text: str) -> Iterator[yaml.Event]:
    """Yield the parser's events for an untrusted YAML text.

    Raises yaml.YAMLError if the text is not valid or has more than MAX_NESTING nested levels:
    loading deeply nested YAML would exhaust the stack.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING:
            raise ConstructorError(None, None, f"more than {MAX_NESTING} nested levels")
        yield event


def dump_yaml(values: Any) -> str:
    """Return plain values as YAML, with keys in their original order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Loader(yaml.CSafeLoader):
    """Reads `1e-4` as a number and `2026-01-01` as a string, and rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if repeated := [key for key, count in keys.items() if count > 1]:
            raise ConstructorError(None, None, f"duplicate key {repeated[0]}", node.start_mark)
        mapping = super().construct_mapping(node, deep=deep)
        if None in mapping:
            raise ConstructorError(None, None, "a key is null", node.start_mark)
        return mapping


class _Dumper(yaml.CSafeDumper):
    """Quotes strings that `_Loader` would read as numbers."""

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
