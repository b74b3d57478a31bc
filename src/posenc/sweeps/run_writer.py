"""Checks and writes the run directories of a sweep's jobs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from posenc.config.components import check
from posenc.config.errors import ConfigError, PosencError, RunError
from posenc.config.identity import identity, short_hash
from posenc.config.steps import evaluated_steps
from posenc.data.dataset import Dataset
from posenc.evaluation.requests import missing_row_keys, requested_row_keys
from posenc.runs.files import reject_special_files, walk_entries
from posenc.runs.lock import describe_holder, is_locked
from posenc.runs.run_directory import RunDirectory
from posenc.runs.saved_config import write_config
from posenc.sweeps.reuse import copy_run, finished_copies
from posenc.training.checkpoint import list_checkpoints, list_weights

UPDATED_ON_RESUME = (
    *("name", "choices", "about", "cache_dir", "modules", "data", "tokenizer"),
    *("evaluation", "ngram_order", "logger", "profiler", "kernel", "devices", "trainer"),
)
"""Keys that a resumed or copied run takes from the new command."""
KEPT_ON_RESUME = ("checkpoint", "compile", "micro_batch_tokens", "validation")
"""Keys that a resumed run keeps, although they are not part of its identity.

If `config.yaml` has been edited, their values are unknown, and those of the new command are used.
"""


@dataclass(frozen=True)
class Job:
    """The run directory, configuration and data of one job.

    `values` is the complete configuration as plain values, and `identity` its part that is hashed
    for the run's name. Jobs that differ only in their seed share one `config`, which has the seed
    of one of them and no `planned` values.
    """

    run: RunDirectory
    config: DictConfig
    values: dict[str, Any]
    identity: dict[str, Any]
    data: Dataset


def find_copy(job: Job, experiments: Sequence[str]) -> RunDirectory | None:
    """Return the first finished copy of the run in `experiments` that can be used, or None.

    It must have a checkpoint or all requested results.
    """
    for copy in finished_copies(job.run, experiments):
        copied = replace(job, run=copy)
        with suppress(RunError):
            is_usable = _has_checkpoint(copied) or _is_complete(copied)
            if is_usable and not _has_other_tokenizer(job, copy.config()):
                return copy
    return None


def directory_problem(job: Job) -> PosencError | None:
    """Return why the directory of a run cannot be used; the other runs continue without it.

    Raises ConfigError if the job evaluates weights that training did not save.
    """
    try:
        _check_directory(job)
        has_only_results = job.run.status().state == "finished" and not _has_checkpoint(job)
        if has_only_results and not _is_complete(job):
            raise RunError(
                f"{job.run.path} has finished, but has no checkpoint to evaluate; to train it"
                f" again, delete it with `posenc clean run={job.run.path} --yes`"
            )
    except PosencError as error:
        return error
    if missing := _token_counts_without_weights(job):
        raise ConfigError(
            f"evaluation.at_tokens={missing}: {job.run.path} was trained past these token counts"
            f" without keeping the weights; use a different name=..., or delete the run with"
            f" `posenc clean run={job.run.path} --yes`"
        )
    return None


def _check_directory(job: Job) -> None:
    """Raise ConfigError if the run directory has an unreadable or a different configuration.

    Raises RunError if it contains anything but files and folders, such as a symbolic link.
    """
    path = job.run.path
    reject_special_files([path, *walk_entries(path)])
    run = job.run
    for file in (run.config_file, run.tokenizer_file, run.status_file, run.lock_file):
        if file.is_dir():
            raise RunError(f"{file} is a folder, not a file; delete it")
    if not run.config_file.exists():
        return
    try:
        existing = job.run.config()
        existing.modules = job.config.modules
        check(existing.encoding, name="encoding", modules=list(existing.modules))
        existing_identity = identity(existing, existing.planned.fingerprint)
    except Exception as error:
        raise ConfigError(
            f"{path}/config.yaml is unreadable ({error}); delete the directory or move it elsewhere"
        ) from None
    planned = job.values["planned"]
    if (existing_hash := short_hash(existing_identity)) != planned["hash"]:
        raise ConfigError(
            f"{path} belongs to a different configuration (hash {existing_hash}, not"
            f" {planned['hash']}); delete it, move it elsewhere or use a different name=..."
        )
    if _has_other_tokenizer(job, existing) and _has_checkpoint(job):
        raise ConfigError(
            f"{path} was trained with a different tokenizer than the one that is now trained on the"
            f" same text, perhaps because another version of `tokenizers` is installed; use a"
            f" different name=..."
        )
    if existing_identity != job.identity:
        raise ConfigError(
            f"{path} belongs to a different configuration with the same hash (a hash"
            f" collision); use a different name=..."
        )


def _has_other_tokenizer(job: Job, existing: DictConfig) -> bool:
    """Return whether a saved configuration has another tokenizer, trained on the same text."""
    return existing.planned.get("tokenizer") not in (None, job.values["planned"]["tokenizer"])


def _has_checkpoint(job: Job) -> bool:
    return bool(list_checkpoints(job.run.checkpoints))


def _is_complete(job: Job) -> bool:
    """Return whether a run has all requested rows, and n-gram models of the requested order.

    If not, a finished run without a checkpoint would have to be trained again. Logs and losses by
    block or position may be missing.
    """
    run = job.run
    saved_order = run.config().get("ngram_order") if run.config_file.exists() else None
    return saved_order == job.config.ngram_order and not _missing_row_keys(job)


def _token_counts_without_weights(job: Job) -> list[int]:
    """Return the requested `at_tokens` that training passed without keeping the weights."""
    trained = max((c.step for c in list_checkpoints(job.run.checkpoints)), default=0)
    kept = {weights.step for weights in list_weights(job.run.checkpoints)}
    missing = {key["at_tokens"] for key in _missing_row_keys(job)} - {None}
    steps = {at_tokens: evaluated_steps(job.config)[at_tokens] for at_tokens in missing}
    return sorted(n for n, step in steps.items() if step <= trained and step not in kept)


def _missing_row_keys(job: Job) -> list[dict[str, Any]]:
    """Return the requested evaluation rows that are missing: all of them if the file is corrupt."""
    try:
        rows = job.run.rows()
    except RunError:  # reported by the run's own process, so that other runs continue
        rows = []
    return missing_row_keys(requested_row_keys(job.config, job.data.fingerprint), rows)


class WrittenRun(NamedTuple):
    """The result of `write_run`; `problem` says why the run cannot be launched.

    `kept_settings` are the keys in KEPT_ON_RESUME for which an unfinished run keeps its own values,
    although the new command sets others.
    """

    problem: PosencError | None = None
    kept_settings: tuple[str, ...] = ()


def write_run(job: Job, source: RunDirectory | None) -> WrittenRun:
    """Copy `source`, if any, and write config, tokenizer and status, unless the run is active.

    The result has a problem if the process of an active run uses different evaluation or
    `ngram_order` settings.
    """
    run = job.run
    if source is not None:
        copy_run(source, run)
    if is_locked(run.lock_file):
        return WrittenRun(_check_active_run(job))
    values: Any = job.values
    ngram_order_changed = False
    kept: tuple[str, ...] = ()
    if run.config_file.exists() and (_has_checkpoint(job) or run.status().state == "finished"):
        # A trained run keeps all settings except those in UPDATED_ON_RESUME.
        config = run.config()
        ngram_order_changed = config.get("ngram_order") != job.config.ngram_order
        kept = tuple(key for key in KEPT_ON_RESUME if config.get(key) != job.config.get(key))
        if kept and _is_edited(run):
            config.update({key: job.config[key] for key in kept})
            kept = ()
        for key in UPDATED_ON_RESUME:
            config[key] = job.config[key]
        config.planned = {**job.values["planned"], "posenc_version": config.planned.posenc_version}
        values = OmegaConf.to_container(config)
    write_config(run.config_file, values)
    job.data.tokenizer.save(run.tokenizer_file)
    status = run.status()
    incomplete = status.state == "finished" and (ngram_order_changed or _missing_row_keys(job))
    if not run.status_file.exists() or incomplete:
        status.replace(state="pending", work_done=0.0).write(run.status_file)
    return WrittenRun(kept_settings=() if status.state == "finished" else kept)


def _is_edited(run: RunDirectory) -> bool:
    """Return whether `config.yaml` has been edited since the run was planned."""
    try:
        run.config_dict(verify=True)
    except RunError:
        return True
    return False


def _check_active_run(job: Job) -> RunError | None:
    config = job.run.config_dict()
    if all(config.get(key) == job.values[key] for key in ("evaluation", "ngram_order")):
        return None
    return RunError(
        f"{describe_holder(job.run.lock_file)} is running it with different evaluation or"
        f" ngram_order settings; rerun this command once it has finished"
    )
