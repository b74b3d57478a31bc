"""The identity of a run: the settings that determine its training, and the hash in its name."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.component_types import import_target, is_user_code
from posenc.config.errors import ConfigError, RunError, describe_error
from posenc.config.user_sources import source_hash
from posenc.config.values import canonical, json_digest, walk

IDENTITY_FIELDS = (
    "encoding",
    "model",
    "train_length",
    "tokens",
    "batch_tokens",
    "optimizer",
    "schedule",
    "gradient_clip",
    "precision",
    "seed",
)
OPTIONAL_IDENTITY_FIELDS = ("callbacks", "debug")
"""Settings that are part of the identity if they are set; runs without them keep their hashes."""
NEW_MODEL_OPTIONS = {"posenc.model.transformer.Transformer": {"qk_norm": False}}
"""Model -> options that were added later, with the defaults that preserve older runs' hashes."""
DIGEST_FIELDS = (
    *IDENTITY_FIELDS,
    *OPTIONAL_IDENTITY_FIELDS,
    "choices",
    "evaluation",
    "tokenizer",
    "planned",
    "validation",
)
"""The settings in the digest that planning saves: those that the identity and the reports use."""
EARLIER_DIGEST_FIELDS = DIGEST_FIELDS[:-1]
"""The settings in the digests of runs that were planned before `validation` was added."""
SOURCE_FIELDS = ("encoding", "model", "optimizer", "schedule", "callbacks")
"""Settings whose custom classes and functions contribute their source code to the identity."""


def identity(config: DictConfig | dict[str, Any], fingerprint: str) -> dict[str, Any]:
    """Return the settings, the data fingerprint and the hashes of user code that identify a run."""
    is_plain = isinstance(config, dict)
    plain: Any = config if is_plain else OmegaConf.to_container(config, resolve=True)
    settings = identity_settings(plain)
    modules = list(plain["modules"])
    sources: dict[str, Any] = {}
    for field in SOURCE_FIELDS:
        if plain.get(field):
            sources |= _user_sources(plain[field], field, modules)
    return canonical({**settings, "data": fingerprint, **({"sources": sources} if sources else {})})


def identity_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a plain configuration that, with data and code, identify a run."""
    settings = {field: config[field] for field in IDENTITY_FIELDS}
    settings |= {field: config[field] for field in OPTIONAL_IDENTITY_FIELDS if config.get(field)}
    if config.get("callbacks"):  # early stopping, for example, depends on when validation happens
        settings["validation"] = config["validation"]
        if len(config["callbacks"]) > 1:  # they are called in this order
            settings["callback_order"] = list(config["callbacks"])
    return settings | {"model": _without_new_options(config["model"])}


def swap_digest(node: DictConfig, modules: Sequence[str]) -> str:
    """Return a hash of the definition of a swap.

    The name of a custom swap does not identify it: it stays the same when the class, or the source
    code of the class, changes.
    """
    values: Any = canonical(OmegaConf.to_container(node, resolve=True))
    sources = _user_sources(values, "evaluation.swap", modules)
    return short_hash({"swap": values, "sources": sources})


def with_new_options(model: dict[str, Any]) -> dict[str, Any]:
    """Return a saved model configuration with defaults for options that were added later."""
    return model | {k: v for k, v in _new_options(model).items() if k not in model}


def _without_new_options(model: dict[str, Any]) -> dict[str, Any]:
    added = _new_options(model).items()
    return {key: value for key, value in model.items() if (key, value) not in added}


def _new_options(model: dict[str, Any]) -> dict[str, Any]:
    return NEW_MODEL_OPTIONS.get(model.get("_target_", ""), {})


def short_hash(values: dict[str, Any]) -> str:
    """Return the first eight hexadecimal digits of `json_digest`."""
    return json_digest(values)[:8]


def key_without_seed(values: dict[str, Any]) -> str:
    """Return all settings except the seed as JSON; runs that differ only in their seed share it."""
    return json.dumps({**values, "seed": None}, sort_keys=True)


def run_name(config: DictConfig | dict[str, Any], hash_: str) -> str:
    """Return a run's name, `<encoding>-L<train_length>-s<seed>-<hash>`."""
    encoding = config["choices"]["encoding"]
    return f"{encoding}-L{config['train_length']}-s{config['seed']}-{hash_}"


def config_digest(config: dict[str, Any], fields: Sequence[str] = DIGEST_FIELDS) -> str:
    """Return 16 hexadecimal digits of a hash of the settings in `fields`."""
    values = {field: config.get(field) for field in fields}
    values["planned"] = {k: v for k, v in config["planned"].items() if k != "digest"}
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def matches_digest(config: dict[str, Any]) -> bool:
    """Whether a saved configuration matches its digest; True if it has none (early versions)."""
    digests = (config_digest(config), config_digest(config, EARLIER_DIGEST_FIELDS))
    return config["planned"].get("digest") in (None, *digests)


def check_identity(config: DictConfig | dict[str, Any]) -> None:
    """Raise RunError if a saved configuration no longer matches its run's hash or name."""
    planned = config["planned"]
    name = run_name(config, planned["hash"])
    if planned.get("run") not in (None, name):
        raise RunError(
            f"the run was planned as {planned['run']}, but its config.yaml has been edited since"
            f" and now has the settings of {name}; undo the edit, or rerun the command, which"
            f" writes the file again"
        )
    new_hash = short_hash(identity(config, planned["fingerprint"]))
    if new_hash != planned["hash"]:
        raise RunError(
            f"the run was planned with hash {planned['hash']} but now has hash {new_hash}: its"
            f" config.yaml or the source code of a custom class has been edited since, or a global"
            f" constant of its module has another value in this process; undo the edit, or rerun"
            f" the command to plan the edited run"
        )


def _user_sources(node: Mapping[str, Any], group: str, modules: Sequence[str]) -> dict[str, Any]:
    """Map the user-defined targets in a config group's node, if any, to hashes of their code.

    If there are any, also returns the order and types of keys, which user code may depend on.
    """
    words = {word for item in walk(node) for word in re.findall(r"\w+", str(item))}
    hashes = dict(_source_hashes(node, group, modules, words))
    return {**hashes, f"{group} keys": _ordered_items(node)} if hashes else {}


def _source_hashes(
    node: Mapping[str, Any], group: str, modules: Sequence[str], words: set[str]
) -> Iterator[tuple[str, str]]:
    path = node.get("_target_")
    if isinstance(path, str) and is_user_code(path, group):
        import_target(node, group, modules)
        try:
            yield path, source_hash(path, words)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{group}._target_={path}: its source code, which is part of the run's identity,"
                f" cannot be read ({describe_error(error)}); use a class or function that is"
                f" defined in a Python file"
            ) from None
    for child in node.values():
        if isinstance(child, dict):
            yield from _source_hashes(child, group, modules, words)


def _ordered_items(values: Any) -> Any:
    """Return nested mappings as lists of (type of key, key, value), in their order.

    The parameters of a `_target_` are sorted, because they are passed by name.
    """
    if isinstance(values, list):
        return [_ordered_items(value) for value in values]
    if not isinstance(values, dict):
        return values
    keys = sorted(values, key=str) if "_target_" in values else values
    return [[type(key).__name__, str(key), _ordered_items(values[key])] for key in keys]
