"""A run's W&B id, its configuration with flat keys to filter and group by, and its git commit."""

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import dotted_keys
from posenc.runs.environment import source_folder
from posenc.runs.run_directory import RunDirectory

MAX_ID_LENGTH = 64
GIT = (
    "git",
    "--no-optional-locks",
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "protocol.allow=never"),
    *("-c", "safe.bareRepository=explicit"),
)
GIT_TIMEOUT = 5  # seconds
SAFE_SETTINGS = re.compile(
    r"""core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|symlinks|hookspath
        |precomposeunicode|autocrlf|eol|safecrlf|whitespace|quotepath|abbrev|compression|worktree
        |sparsecheckout|sparsecheckoutcone|sharedrepository|longpaths|untrackedcache|commitgraph)
    |extensions\.(?:worktreeconfig|objectformat|refstorage)
    |remote\..+\.(?:url|pushurl|fetch|push|tagopt|prune|mirror|gh-resolved)
    |submodule\.(?:active|.+\.(?:url|active|branch|ignore))
    |lfs\.(?:repositoryformatversion|allowincompletepush|.+\.(?:access|locksverify))
    |gc\.(?:auto|autodetach|autopacklimit|pruneexpire|reflogexpire|reflogexpireunreachable)
    |(?:branch|user|author|committer|color|init|pull|push|fetch|commit|tag|github)\..+""",
    re.VERBOSE | re.DOTALL,
)
"""Repository settings that cannot make `git status` or `git diff` run another program.

Settings for hooks and remotes are among them, because the options in `GIT` turn hooks and remotes
off. git lists names in lower case, except for the name of a branch, a remote or a submodule.
"""
KEPT_VARIABLES = ("GIT_CONFIG_", "GIT_EXEC_PATH", "GIT_CEILING_DIRECTORIES")
"""Prefixes of the environment variables `GIT_...` that are passed on to git.

The others, some of which git sets for its hooks, can name another repository or programs to run.
"""
MAX_DIFF_CHARACTERS = 1_000_000
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
    """Return `<experiment folder>.<run>`, which is the same for every start of the run."""
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


def git_state() -> dict[str, Any]:
    """Return the commit of posenc's git checkout and whether it has uncommitted changes.

    Returns an empty mapping if posenc does not run from a git checkout, or if the settings of the
    repository could make git run another program.
    """
    folder = source_folder()  # a job imports a copy, whose folder others may own
    try:
        _require_safe_repository(folder)
        if not _git(folder, "ls-files"):  # a virtual environment in another repository
            return {}
        commit = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "-uno", "--ignore-submodules=all")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"git_commit": commit, "git_dirty": bool(changes)}


def git_diff() -> str:
    """Return the uncommitted changes of the git repository that contains the current folder.

    Returns an empty string if there is no repository, if its settings could make git run another
    program, or if the changes exceed MAX_DIFF_CHARACTERS.
    """
    options = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
    try:
        _require_safe_repository(Path.cwd())
        diff = _git(Path.cwd(), "diff", *options, "HEAD")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{diff}\n" if 0 < len(diff) <= MAX_DIFF_CHARACTERS else ""


def _require_safe_repository(folder: Path) -> None:
    """Raise SubprocessError if a git repository, which may be from someone else, is not safe.

    Its settings could make git run other programs, or set `core.worktree` to one of the user's
    folders, whose contents would then be saved.
    """
    settings = _git(folder, "config", "--list", "--show-scope", "--name-only", "-z").split("\0")
    for scope, name in zip(settings[::2], settings[1::2], strict=False):
        if scope in ("local", "worktree") and not SAFE_SETTINGS.fullmatch(name):
            raise subprocess.SubprocessError(f"{name} is set")
    work_tree = Path(_git(folder, "rev-parse", "--show-toplevel"))
    repositories = {_git(path, "rev-parse", "--absolute-git-dir") for path in (folder, work_tree)}
    if len(repositories) > 1:
        raise subprocess.SubprocessError("core.worktree is a folder of another repository")


def _git(folder: Path, *arguments: str) -> str:
    command = [*GIT, "-C", str(folder), *arguments]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(KEPT_VARIABLES)
    }
    output = subprocess.check_output(
        command,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        timeout=GIT_TIMEOUT,
        env={**environment, "GIT_NO_LAZY_FETCH": "1"},
    )
    return output.decode(errors="replace").strip()
