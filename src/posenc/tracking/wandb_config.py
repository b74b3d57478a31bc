"""A run's W&B id and its W&B configuration, with flat keys to filter and group by."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import dotted_keys
from posenc.runs.run_directory import RunDirectory

MAX_ID_LENGTH = 64
TOKEN_ORDER_KEYS = ("train_length", "seed", "tokens", "batch_tokens")
FLAT_KEYS = (*TOKEN_ORDER_KEYS, "precision", "kernel")
SHOWN_IN_FLAT_KEYS = {
    "choices": ("encoding", "model", "data"),
    "planned": ("parameters", "fingerprint", "run"),
}
"""Node of the configuration -> its keys that are already among the flat keys."""


def experiment_folder(run: RunDirectory) -> Path:
    """Return the absolute path of the folder of the run's experiment."""
    return run.path.resolve().parent


def wandb_folder(run: RunDirectory) -> Path:
    """Return the folder with the local files of the W&B runs of an experiment."""
    return experiment_folder(run) / "wandb"


def wandb_id(*names: str) -> str:
    """Join names with dots into a W&B id of at most 64 characters from [A-Za-z0-9_.-].

    If characters must be replaced or cut, the id ends with a digest of the original names, so that
    different names have different ids.
    """
    original = ".".join(names)
    sanitized = re.sub(r"[^A-Za-z0-9_.-]", "-", original)
    if sanitized == original and len(original) <= MAX_ID_LENGTH:
        return original
    digest = hashlib.sha256(original.encode()).hexdigest()[:8]
    return f"{sanitized[: MAX_ID_LENGTH - len(digest) - 1]}-{digest}"


def run_id(run: RunDirectory) -> str:
    """Return an id made from `<experiment folder>.<run>`, the same for every start of the run."""
    return wandb_id(experiment_folder(run).name, run.name)


def sweep_trial_id() -> str | None:
    """Return the id that a W&B sweep agent assigned to this trial, or None outside a sweep."""
    return os.environ.get("WANDB_RUN_ID") if os.environ.get("WANDB_SWEEP_ID") else None


def run_config(run: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """Return flat keys to filter and group by, and all other settings under `config`."""
    encoding_variant, other = variant(config), OmegaConf.to_container(config, resolve=True)
    assert isinstance(other, dict)
    for key in FLAT_KEYS:
        del other[key]
    for group, keys in SHOWN_IN_FLAT_KEYS.items():
        other[group] = {k: v for k, v in other[group].items() if k not in keys}
    return {
        **{group: config.choices[group] for group in SHOWN_IN_FLAT_KEYS["choices"]},
        "variant": encoding_variant,
        "series": f"{encoding_variant} L={config.train_length}",
        **{key: config[key] for key in FLAT_KEYS},
        "parameters": config.planned.parameters,
        "data_fingerprint": config.planned.fingerprint,
        "token_order_digest": token_order_digest(config),
        "run": run.name,
        "experiment": experiment_folder(run).name,
        "config": other,
    }


def variant(config: DictConfig) -> str:
    """Return the encoding and its parameters, such as `alibi slopes=authors trainable=False`."""
    values = {key: OmegaConf.select(config.encoding, key) for key in dotted_keys(config.encoding)}
    parameters = [
        f"{key}={value}"
        for key, value in values.items()
        if not OmegaConf.is_config(value) and not key.endswith("_")  # such as _target_
    ]
    return " ".join([config.choices.encoding, *parameters])


def token_order_digest(config: DictConfig) -> str:
    """Return a digest of the settings that determine the training tokens and their order.

    Runs with the same digest were trained on the same tokens in the same order, so their results
    can be compared in pairs.
    """
    values = [config.planned.fingerprint, *(float(config[key]) for key in TOKEN_ORDER_KEYS)]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]
