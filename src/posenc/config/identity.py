"""A run is named by what it is: the hash of everything that changes the identity."""

import hashlib
import inspect
import json
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.components import target
from posenc.config.numbers import canonical

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
    """What identifies a run: its scientific settings, its data, and its author's own code."""
    chosen: Any = OmegaConf.to_container(
        OmegaConf.masked_copy(config, list(IDENTITY_FIELDS)), resolve=True
    )
    sources = _foreign_sources(config.encoding)
    return canonical({**chosen, "data": fingerprint, **({"sources": sources} if sources else {})})


def run_hash(identity: dict[str, Any]) -> str:
    """Eight hexadecimal digits of the identity."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def run_name(config: DictConfig, encoding: str, digest: str) -> str:
    """`<encoding>-L<train_length>-s<seed>-<hash>`."""
    return f"{encoding}-L{config.train_length}-s{config.seed}-{digest}"


def _foreign_sources(node: DictConfig) -> dict[str, str]:
    """Hashes of the source of each class outside posenc that a node is built from."""
    sources: dict[str, str] = {}
    path = node.get("_target_")
    if isinstance(path, str) and not path.startswith("posenc."):
        source = inspect.getsource(target(node, "encoding"))
        sources[path] = hashlib.sha256(source.encode()).hexdigest()
    for child in node.values():
        if isinstance(child, DictConfig):
            sources.update(_foreign_sources(child))
    return sources
