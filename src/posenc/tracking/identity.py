"""What a run is called on a dashboard, and the flat configuration it is filtered and grouped by."""

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.keys import leaves
from posenc.runs.run_directory import RunDirectory

ID_LENGTH = 64
GIT_SECONDS = 5
STREAM = ("train_length", "seed", "tokens", "batch_tokens")
FLAT = (*STREAM, "precision", "kernel")


def experiment_folder(run: RunDirectory) -> Path:
    """The folder of the run's experiment, by its whole path, wherever posenc was called from."""
    return run.path.resolve().parent


def wandb_id(*names: str) -> str:
    """`<experiment folder>.<run>`, the same at every start; W&B takes 64 characters of [\\w.-].

    A name that does not fit is cut and marked with a digest of the whole, so that no two meet.
    """
    whole = ".".join(names)
    fitting = re.sub(r"[^A-Za-z0-9_.-]", "-", whole)
    if fitting == whole and len(whole) <= ID_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{fitting[: ID_LENGTH - len(digest) - 1]}-{digest}"


def run_id(run: RunDirectory) -> str:
    return wandb_id(experiment_folder(run).name, run.name)


def trial_id() -> str | None:
    """The id that the agent of a W&B sweep gives the run of its trial."""
    return os.environ.get("WANDB_RUN_ID") if os.environ.get("WANDB_SWEEP_ID") else None


def run_config(run: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """Flat keys to filter and group by, and the whole configuration under `config`."""
    names = {group: config.choices[group] for group in ("encoding", "model", "data")}
    return {
        **names,
        "variant": (said := variant(config)),
        "series": f"{said} L={config.train_length}",
        **{key: config[key] for key in FLAT},
        "parameters": config.frozen.parameters,
        "data_fingerprint": config.frozen.fingerprint,
        "token_stream": token_stream(config),
        "run": run.name,
        "experiment": experiment_folder(run).name,
        "config": OmegaConf.to_container(config, resolve=True),
    }


def variant(config: DictConfig) -> str:
    """The encoding with its knobs as they would be typed: `rope spectrum.base=10000.0`."""
    said = [key for key in leaves(config.encoding) if not OmegaConf.is_config(_at(config, key))]
    knobs = [f"{key}={_at(config, key)}" for key in said if not key.endswith("_")]
    return " ".join([config.choices.encoding, *knobs])


def token_stream(config: DictConfig) -> str:
    """A digest of all that decides the training tokens and their order; equal for paired runs."""
    deciding = [config.frozen.fingerprint, *(float(config[key]) for key in STREAM)]
    return hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]


def git_state() -> dict[str, Any]:
    """The commit of the checkout that this code lies in, and whether it was changed since."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno")
    return {} if commit is None else {"git_commit": commit, "git_dirty": bool(changes)}


def _at(config: DictConfig, key: str) -> Any:
    return OmegaConf.select(config.encoding, key)


def _git(*words: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
