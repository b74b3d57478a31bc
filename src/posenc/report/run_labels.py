"""The label of each run in a folder: its encoding and the settings in which the runs differ."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from posenc.config.errors import one_line
from posenc.config.identity import SOURCE_FIELDS, identity_settings, key_without_seed
from posenc.config.paths import groups, options

LABELED_GROUPS = ("encoding", "data", "tokenizer", "model", "optimizer", "schedule")
LABELED_SETTINGS = ("tokens", "batch_tokens", "gradient_clip", "precision")
CONSTRUCTOR_KEYS = ("_target_", "_partial_")


class Setting(NamedTuple):
    """The dotted path and the formatted value of a setting.

    Values are compared only between runs with the same `context`, which consists of config group
    choices and settings.
    """

    path: str
    value: str
    context: tuple[Any, ...]


def run_labels(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a label for each configuration: the encoding's name, then the settings that vary.

    A setting is part of the labels if two runs with the same training length and the same choices
    in the setting's config group differ in it, or only one of them has it. Runs that would
    otherwise have the same label and training length, although they differ in more than the seed,
    get their hash in the label. Configurations without a run, as in `posenc plan`, have
    neither a hash nor a data fingerprint, so their labels may stay ambiguous.
    """
    settings = _all_settings(configs)
    varying = _varying_settings(configs, settings)
    names = _short_names({path for path, _ in varying})
    labels = []
    for config, run in zip(configs, settings, strict=True):
        shown = [setting for setting in run if (setting.path, setting.context) in varying]
        parts = (f"{names[setting.path]}={setting.value}" for setting in shown)
        labels.append(" ".join([config["choices"]["encoding"], *parts]))
    ambiguous = _ambiguous_labels(labels, configs)
    return [
        f"{label} #{config['planned']['hash']}"
        if (label, config["train_length"]) in ambiguous and "planned" in config
        else label
        for label, config in zip(labels, configs, strict=True)
    ]


def _ambiguous_labels(
    labels: Sequence[str], configs: Sequence[dict[str, Any]]
) -> set[tuple[str, int]]:
    """Return the labels, with training lengths, that do not identify one run per seed.

    Their runs differ in more than the seed, or there are several with the same seed.
    """
    identities: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    counts: Counter[tuple[str, int, int]] = Counter()
    for label, config in zip(labels, configs, strict=True):
        key = label, config["train_length"]
        data_and_code = {
            "data": _fingerprint(config),
            "sources": config.get("planned", {}).get("sources"),
        }
        identities[key].add(key_without_seed(identity_settings(config) | data_and_code))
        counts[*key, config["seed"]] += 1
    return {
        *(key for key, different in identities.items() if len(different) > 1),
        *(key[:2] for key, count in counts.items() if count > 1),
    }


def label_notes(labels: Iterable[str]) -> list[str]:
    """Return a description of each option in the labels that is from a subgroup of `encoding`."""
    words = dict.fromkeys(word for label in labels for word in label.split())
    notes = []
    for word in words:
        name, _, option = word.partition("=")
        group = f"encoding/{name.rpartition('.')[2]}"
        if group in groups() and (description := options(group).get(option)):
            notes.append(f"{word}: {description}")
    return notes


def swept_settings(configs: Sequence[dict[str, Any]]) -> list[dict[str, str | None]]:
    """Return, for each configuration, the settings in which configurations differ, by path.

    As in the labels, a setting of a config group is compared between configurations with the same
    choices in this group. The value is None if a configuration has no such setting. Encoding,
    training length and seed are left out, as are tokens and model, which runs.csv always has.
    """
    settings = _all_settings(configs)
    swept = [path for path, _, _ in _different_settings((run, 0) for run in settings)]
    paths = [path for path in dict.fromkeys(swept) if path not in ("tokens", "model")]
    texts = [{path: value for path, value, _ in run} for run in settings]
    return [{path: run.get(path) for path in paths} for run in texts]


def training_settings(config: dict[str, Any]) -> dict[str, str]:
    """Return a run's settings by path, without those of the encoding, the data and user code."""
    settings = _settings(config)
    texts = {path: format_setting(value) for path, value, _ in settings}
    others = ("encoding", "data", "sources")
    return {path: text for path, text in texts.items() if path.partition(".")[0] not in others}


def natural_key(label: str) -> list[tuple[int, float, str]]:
    """Return a sort key that compares numbers within labels by value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(1, float(p), "") if i % 2 else (0, 0.0, p) for i, p in enumerate(parts)]


def flatten(
    node: Any, prefix: str = "", *, exclude: Sequence[str] = CONSTRUCTOR_KEYS
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings with their dotted paths, except for keys in `exclude`."""
    if not isinstance(node, dict):
        yield prefix, node
        return
    for key, child in node.items():
        if key not in exclude:
            path = f"{prefix}.{key}" if prefix else str(key)
            yield from flatten(child, path, exclude=exclude)


def format_setting(value: Any) -> str:
    """Format a setting for labels and reports: `500000`, `0.1`, `none`, `true`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:g}"
    if isinstance(value, list):
        return f"[{','.join(format_setting(item) for item in value)}]"
    return one_line(value)


def _all_settings(configs: Sequence[dict[str, Any]]) -> list[tuple[Setting, ...]]:
    """Return the settings of each configuration.

    Configurations with the same settings, such as those of several seeds, are processed only once.
    """
    names = (*LABELED_GROUPS, *LABELED_SETTINGS, "callbacks", "choices")
    by_key: dict[str, tuple[Setting, ...]] = {}
    keys = []
    for config in configs:
        values = [config.get(name) for name in names]
        sources = config.get("planned", {}).get("sources")
        keys.append(json.dumps([_fingerprint(config), sources, *values]))
        if keys[-1] not in by_key:
            settings = _settings(config)
            by_key[keys[-1]] = tuple(Setting(p, format_setting(v), c) for p, v, c in settings)
    return [by_key[key] for key in keys]


def _settings(config: dict[str, Any]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield the path, the value and the context of each setting."""
    for group in LABELED_GROUPS:
        chosen = _chosen_options(config, group)
        if group != "encoding":
            yield group, config["choices"].get(group), ()
        for path, option in chosen[1:]:
            yield path.replace("/", "."), option, (chosen[0],)
        if group != "data":
            for path, value in flatten(config.get(group) or {}, group, exclude=["_partial_"]):
                yield path, value, tuple(chosen)
    callbacks = config.get("callbacks") or {}
    yield "callbacks", list(callbacks) or None, ()
    for name, callback in callbacks.items():
        for path, value in flatten(callback, f"callbacks.{name}", exclude=["_partial_"]):
            yield path, value, ("callbacks", name)
    yield "data.fingerprint", _fingerprint(config)[:8], _data_context(config)
    yield "debug", config["choices"].get("debug"), ()
    yield "sources", config.get("planned", {}).get("sources"), _sources_context(config)
    for name in LABELED_SETTINGS:
        yield name, config.get(name), ()


def _fingerprint(config: dict[str, Any]) -> str:
    return config["planned"]["fingerprint"] if "planned" in config else ""


def _chosen_options(config: dict[str, Any], group: str) -> list[tuple[str, Any]]:
    """Return the chosen options of a group and its subgroups; the group itself comes first."""
    subgroups = [item for item in config["choices"].items() if item[0].startswith(f"{group}/")]
    return [(group, config["choices"].get(group)), *sorted(subgroups)]


def _data_context(config: dict[str, Any]) -> tuple[Any, ...]:
    """Return the context of the data fingerprint: the data option and the tokenizer's settings."""
    settings = flatten(config.get("tokenizer"))
    tokenizer = sorted((path, format_setting(value)) for path, value in settings)
    return (config["choices"].get("data"), config["choices"].get("tokenizer"), *tokenizer)


def _sources_context(config: dict[str, Any]) -> tuple[Any, ...]:
    """Return all settings of the components of a run that may be user code.

    If these are the same in two runs, but `sources` is not, the code was edited in between.
    """
    return tuple(
        (path, format_setting(value))
        for field in SOURCE_FIELDS
        for path, value in flatten(config.get(field), field, exclude=())
    )


def _varying_settings(
    configs: Sequence[dict[str, Any]], settings: list[tuple[Setting, ...]]
) -> set[tuple[str, tuple[Any, ...]]]:
    """Return the path and context of every setting that differs at the same training length."""
    lengths = (config["train_length"] for config in configs)
    different = _different_settings(zip(settings, lengths, strict=True))
    return {(path, context) for path, context, _ in different}


def _different_settings(
    runs: Iterable[tuple[tuple[Setting, ...], int]],
) -> list[tuple[str, tuple[Any, ...], int]]:
    """Return the path, context and length of settings in which runs of the same length differ.

    Runs also differ in a setting if only some of the runs with its context have it.
    """
    values: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    counts: Counter[tuple[Any, ...]] = Counter()
    for run, length in dict.fromkeys(runs):
        counts.update((context, length) for context in {setting.context for setting in run})
        counts.update((path, context, length) for path, _, context in run)
        for path, value, context in run:
            values[path, context, length].add(value)
    return [key for key, seen in values.items() if len(seen) > 1 or counts[key] < counts[key[1:]]]


def _short_names(paths: set[str]) -> dict[str, str]:
    """Return the last part of each path, or the full path if two paths share their last part."""
    last_parts = {path: path.rpartition(".")[2] for path in paths}
    counts = Counter(last_parts.values())
    return {path: path if counts[part] > 1 else part for path, part in last_parts.items()}
