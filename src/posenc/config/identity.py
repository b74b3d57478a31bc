"""The identity of a run: everything that changes its results, and the hash that names the run."""

import hashlib
import inspect
import json
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.components import target
from posenc.config.values import canonical

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


def identity(config: DictConfig, fingerprint: str) -> dict[str, Any]:
    """Return the settings, the data and the user-written code that identify a run."""
    fields = OmegaConf.masked_copy(config, list(IDENTITY_FIELDS))
    chosen: Any = OmegaConf.to_container(fields, resolve=True)
    sources = _user_sources(config.encoding)
    return canonical({**chosen, "data": fingerprint, **({"sources": sources} if sources else {})})


def run_hash(identity: dict[str, Any]) -> str:
    """Return eight hexadecimal digits of an identity."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def run_name(config: DictConfig, encoding: str, digest: str) -> str:
    """Return `<encoding>-L<train_length>-s<seed>-<hash>`."""
    return f"{encoding}-L{config.train_length}-s{config.seed}-{digest}"


def _user_sources(node: DictConfig) -> dict[str, str]:
    """Return a hash of the source of each class outside posenc in a configuration node."""
    sources: dict[str, str] = {}
    path = node.get("_target_")
    if isinstance(path, str) and not path.startswith("posenc."):
        source = inspect.getsource(target(node, "encoding"))
        sources[path] = hashlib.sha256(source.encode()).hexdigest()
    for child in node.values():
        if isinstance(child, DictConfig):
            sources.update(_user_sources(child))
    return sources
