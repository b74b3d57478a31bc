"""What a run is called beside the others of its folder: its encoding, and what varies."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

GROUPS = ("encoding", "data", "tokenizer", "model", "optimizer", "schedule")
SETTINGS = ("tokens", "batch_tokens", "gradient_clip", "precision")
BUILDING = ("_target_", "_partial_")


class Fact(NamedTuple):
    """One thing that is true of a run, and `given` which others it is compared."""

    path: str
    value: Any
    given: tuple[Any, ...]


def labels(configs: Sequence[dict[str, Any]]) -> list[str]:
    """One label for each configuration: the encoding's name, then what varies in the folder.

    A value is named where two runs of the same training length and choices differ in it. Two runs
    that would share label, training length and seed are told apart by their hashes.
    """
    facts = [list(_facts(config)) for config in configs]
    varying = _varying(configs, facts)
    paths = {path for path, _ in varying}
    names = [
        " ".join([config["choices"]["encoding"], *_parts(run, varying, _short(paths))])
        for config, run in zip(configs, facts, strict=True)
    ]
    keys = [(n, c["train_length"], c["seed"]) for n, c in zip(names, configs, strict=True)]
    twice = {key for key, count in Counter(keys).items() if count > 1}
    return [
        f"{key[0]} #{config['frozen']['hash']}" if key in twice else key[0]
        for key, config in zip(keys, configs, strict=True)
    ]


def natural(label: str) -> list[tuple[int, float, str]]:
    """A sort key under which numbers within labels count as numbers."""
    pieces = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(1, float(p), "") if i % 2 else (0, 0.0, p) for i, p in enumerate(pieces)]


def flatten(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings under dotted paths; what only builds objects is left out."""
    if not isinstance(node, dict):
        yield prefix, node
        return
    for key, child in node.items():
        if key not in BUILDING:
            yield from flatten(child, f"{prefix}.{key}" if prefix else str(key))


def plain(value: Any) -> str:
    """A setting as it would be typed: `500000`, `0.1`, `none`, `true`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:g}"
    if isinstance(value, list):
        return f"[{','.join(plain(item) for item in value)}]"
    return str(value)


def _facts(config: dict[str, Any]) -> Iterator[Fact]:
    for group in GROUPS:
        chosen = _choices(config, group)
        if group != "encoding":
            yield Fact(group, config["choices"].get(group), ())
        for path, option in chosen[1:]:
            yield Fact(path.replace("/", "."), option, (chosen[0],))
        if group != "data":
            for path, value in flatten(config.get(group) or {}, group):
                yield Fact(path, value, tuple(chosen))
    yield Fact("data.fingerprint", config["frozen"]["fingerprint"][:8], _corpus(config))
    for name in SETTINGS:
        yield Fact(name, config.get(name), ())


def _choices(config: dict[str, Any], group: str) -> list[tuple[str, Any]]:
    """The chosen option of a group and of its sub-groups, the group itself first."""
    chosen = [item for item in config["choices"].items() if item[0].startswith(f"{group}/")]
    return [(group, config["choices"].get(group)), *sorted(chosen)]


def _corpus(config: dict[str, Any]) -> tuple[Any, ...]:
    """What a data fingerprint is expected to follow from; it is named where it does not."""
    tokenizer = sorted((path, plain(value)) for path, value in flatten(config.get("tokenizer")))
    return (config["choices"].get("data"), config["choices"].get("tokenizer"), *tokenizer)


def _varying(
    configs: Sequence[dict[str, Any]], facts: list[list[Fact]]
) -> set[tuple[str, tuple[Any, ...]]]:
    seen: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    for config, run in zip(configs, facts, strict=True):
        for path, value, given in run:
            seen[path, given, config["train_length"]].add(plain(value))
    return {(path, given) for (path, given, _), values in seen.items() if len(values) > 1}


def _parts(
    run: list[Fact], varying: set[tuple[str, tuple[Any, ...]]], short: dict[str, str]
) -> list[str]:
    return [f"{short[p]}={plain(v)}" for p, v, given in run if (p, given) in varying]


def _short(paths: set[str]) -> dict[str, str]:
    """The last component of each path where no other path ends in it, else all of it."""
    endings = Counter(path.rpartition(".")[2] for path in paths)
    return {p: p if endings[p.rpartition(".")[2]] > 1 else p.rpartition(".")[2] for p in paths}
