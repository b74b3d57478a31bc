"""Reads the configuration and data of a saved run, which may come from an untrusted source."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from posenc.config.component_types import trusted_modules, user_targets
from posenc.config.errors import ConfigError
from posenc.data.build_data import data_source
from posenc.data.dataset import Dataset
from posenc.data.prepare import fingerprint, prepare
from posenc.data.tasks.task_data import TaskData
from posenc.data.tokenizers import Tokenizer, load_tokenizer
from posenc.runs.lock import LOCK_TIMEOUT, describe_holder, lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.trusted_code import is_trusted
from posenc.tracking.build_tracker import reset_untrusted_destination


def run_config(
    run: RunDirectory, modules: Sequence[str], trust_hint: Callable[[list[str]], str]
) -> DictConfig:
    """Return the configuration of a run, whose components may be from posenc or from `modules`.

    The modules of `config.yaml` are ignored, because a run directory may come from someone else,
    and importing a module runs its code. A module is added if the user has already trained with all
    of its classes and functions that the configuration uses. For the same reason, the W&B mode
    `online` or an entity is kept only if the user has trained with it on this machine, and
    `cache_dir` only if the user has trained with it and it has the run's corpus. Raises ConfigError
    if the run's encoding needs another module that exists in the current directory; `trust_hint`
    returns the command or call that trusts a list of modules.
    """
    values = run.config_dict()
    unknown = {t.split(".")[0] for t in user_targets(values) if not is_trusted("target", t)}
    needed = trusted_modules(values)  # `modules` is empty in a saved configuration
    modules = [*modules, *(name for name in needed if name not in {*unknown, *modules})]
    config = OmegaConf.create({**values, "modules": modules})
    reset_untrusted_destination(config)
    has_corpus = (Path(config.cache_dir) / config.planned.fingerprint / "meta.json").is_file()
    default_cache = run.path.absolute().parent.parent / ".data"  # for its current location
    is_default = os.path.realpath(config.cache_dir) == os.path.realpath(default_cache)
    if not (has_corpus and (is_default or is_trusted("cache", config.cache_dir))):
        config.cache_dir = str(run.path.resolve().parent.parent / ".data")
    plain: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, ["encoding", "modules"]))
    for module in set(trusted_modules(plain)) - {name.split(".")[0] for name in modules}:
        if not any(Path(path).is_file() for path in (f"{module}.py", f"{module}/__init__.py")):
            continue  # the check of the configuration's targets reports this module
        raise ConfigError(
            f"{run.name} has an encoding from the module {module}, which is outside posenc and is"
            f" imported only if you trust it; to trust {module}: {trust_hint([*modules, module])}"
        )
    return config


@contextmanager
def locked_run(run: RunDirectory) -> Iterator[None]:
    """Lock a run. Raises ConfigError if another process is using it or has deleted it."""
    if not run.config_file.exists():  # locking it would create its directory again
        raise ConfigError(f"{run.path} has been deleted")
    with lock(run.lock_file, timeout=LOCK_TIMEOUT) as acquired:
        if not acquired:
            holder = describe_holder(run.lock_file)
            raise ConfigError(f"{run.name} is in use by {holder}; wait for that process")
        yield


@contextmanager
def training_threads(run: RunDirectory) -> Iterator[None]:
    """Use as many threads as in training, because their number can affect the rounding of sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(run.status().resolved.get("threads", threads))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_tokenizer(run: RunDirectory, config: DictConfig) -> Tokenizer:
    """Return the tokenizer of a run.

    Raises RunError if its files are corrupt or from another run. The latter is not checked for runs
    of earlier versions, which have no tokenizer digest.
    """
    return load_tokenizer(run.tokenizer_file, config.planned.get("tokenizer"))


def training_data(config: DictConfig, remedy: str, on_progress: Callable[[str], None]) -> Dataset:
    """Return the dataset that a run was trained on.

    Raises ConfigError with the `remedy` if the data or tokenizer has changed since then. In that
    case, nothing is written: a configuration from someone else may refer to the user's private
    files, and to a `cache_dir` that its author can read.
    """
    source = data_source(config)
    is_task = isinstance(source, TaskData)
    current = source.fingerprint if is_task else fingerprint(*source)
    if current != config.planned.fingerprint:
        raise ConfigError(
            f"the data or the tokenizer has changed since the run was trained (the fingerprint was"
            f" {config.planned.fingerprint} and is now {current}); {remedy}"
        )
    if is_task:
        return source
    data = prepare(*source, Path(config.cache_dir), on_progress)
    if config.planned.get("tokenizer") not in (None, data.tokenizer.file_digest):
        raise ConfigError(
            f"training the tokenizer on the same text again gives a different one, perhaps"
            f" because another version of `tokenizers` is installed; {remedy}"
        )
    return data
